"""Makes vectors and rankings with a client library, unmodified.

    embedding_clients.py openai|cohere|langchain|retrieval BASE_URL

Exits with 3 if the client is not installed.
"""

import math
import sys

TEXTS = ["A small theatre has a stage.", "The curtain rose.", "It rained."]


def is_close(one, other):
    return len(one) == len(other) and all(math.isclose(a, b, abs_tol=1e-6) for a, b in zip(one, other))


def check(vectors, again):
    assert len(vectors) == len(TEXTS), len(vectors)
    for vector, other in zip(vectors, again):
        assert math.isclose(sum(x * x for x in vector), 1.0, abs_tol=1e-4)
        assert is_close(vector, other)


def of_openai(url):
    import openai

    client = openai.OpenAI(base_url=url + "/v1", api_key="none")
    model = client.models.list().data[0].id
    # The client asks for base64 unless it is given a format.
    packed = client.embeddings.create(model=model, input=TEXTS)
    plain = client.embeddings.create(model=model, input=TEXTS, encoding_format="float")
    check([item.embedding for item in packed.data], [item.embedding for item in plain.data])
    assert packed.usage.prompt_tokens == packed.usage.total_tokens > 0
    try:
        client.embeddings.create(model=model, input=[])
    except openai.BadRequestError as error:
        assert "at least one prompt" in str(error), error
    else:
        raise AssertionError("an empty list was taken")


def of_cohere(url):
    import cohere

    client = cohere.ClientV2(base_url=url, api_key="none")
    answers = [
        client.embed(texts=TEXTS, model="demo", embedding_types=["float"], input_type=None)
        for _ in range(2)
    ]
    check(*[answer.embeddings.float_ for answer in answers])
    ranking = client.rerank(model="demo", query=TEXTS[1], documents=TEXTS, top_n=2)
    assert [result.index for result in ranking.results][0] == 1, ranking
    assert len(ranking.results) == 2, ranking


def of_langchain(url):
    from langchain_openai import OpenAIEmbeddings

    options = dict(model="demo", base_url=url + "/v1", api_key="none")
    embeddings = OpenAIEmbeddings(check_embedding_ctx_length=False, **options)
    vectors = embeddings.embed_documents(TEXTS)
    check(vectors, [embeddings.embed_query(text) for text in TEXTS])


def of_retrieval(url):
    """A retrieval task as MTEB has them, on text that the demo model's lessons make up: documents
    and queries are embedded in batches, and ranked by their products."""
    import json
    import pathlib
    import urllib.request

    sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "examples" / "demo-model"))
    from lessons import pairs
    from lessons.split import Split

    def embed(texts):
        vectors = []
        for start in range(0, len(texts), 16):
            body = json.dumps({"model": "demo", "input": texts[start : start + 16]}).encode()
            request = urllib.request.Request(
                url + "/v1/embeddings", body, {"Content-Type": "application/json"}
            )
            with urllib.request.urlopen(request) as answer:
                vectors += [item["embedding"] for item in json.load(answer)["data"]]
        return vectors

    kinds = ["people", "towns", "stories"]
    lessons = [pair for index in range(25) for pair in pairs.group(21, index, Split(True), kinds)]
    documents = sorted({pair.document for pair in lessons})
    queries, gain = embed([pair.query for pair in lessons]), 0.0
    corpus = embed(documents)
    for pair, query in zip(lessons, queries):
        score = lambda index: -sum(a * b for a, b in zip(query, corpus[index]))
        order = sorted(range(len(documents)), key=score)
        right = {documents.index(other.document) for other in lessons if pair.is_answered_by(other)}
        rank = min(order.index(index) for index in right)
        gain += 1 / math.log2(rank + 2) if rank < 10 else 0.0
    ndcg = gain / len(lessons)
    print(f"nDCG@10 of {len(lessons)} queries over {len(documents)} documents: {ndcg:.3f}")
    assert ndcg > 0.7, ndcg


if __name__ == "__main__":
    name, base_url = sys.argv[1:]
    try:
        clients = {"openai": of_openai, "cohere": of_cohere, "langchain": of_langchain}
        (clients | {"retrieval": of_retrieval})[name](base_url)
    except ImportError as error:
        print(f"no {name} client: {error}")
        sys.exit(3)
