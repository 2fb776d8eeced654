// Server-sent events, read from the body of a response: `EventSource` cannot send a key.

/** Reads on. Where the connection broke, the error has a name that says so. */
async function next(reader) {
  try {
    return await reader.read();
  } catch (error) {
    if (error.name === 'AbortError') throw error;
    throw Object.assign(new Error(error.message), { name: 'StreamEnded' });
  }
}

/** Yields the events of a stream, as the text after `data:`. */
export async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  try {
    for (;;) {
      const { done, value } = await next(reader);
      if (done) return;
      rest += value;
      const all = rest.split('\n\n');
      rest = all.pop();
      for (const event of all) {
        const data = event.split('\n').filter((line) => line.startsWith('data:'));
        if (data.length) yield data.map((line) => line.slice(5).trimStart()).join('\n');
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
