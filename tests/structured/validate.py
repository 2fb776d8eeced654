"""Holds texts against their JSON schemas: a line of the file a pair, {"schema": ..., "text": ...}.

Exits with 1 if any is invalid, with 3 where the package `jsonschema` is not installed.
"""
import json
import sys

try:
    from jsonschema import Draft202012Validator, FormatChecker
    from jsonschema.validators import validator_for
except ImportError as error:
    print(error)
    sys.exit(3)


def refuse_constant(name):
    raise ValueError(f"{name} is no JSON")


num_valid, invalid = 0, []
with open(sys.argv[1], encoding="utf-8") as pairs:
    for line in pairs:
        pair = json.loads(line)
        schema, text = pair["schema"], pair["text"]
        try:
            value = json.loads(text, parse_constant=refuse_constant)
            validator = validator_for(schema, default=Draft202012Validator)
            validator(schema, format_checker=FormatChecker()).validate(value)
            num_valid += 1
        except Exception as error:
            invalid.append(f"{json.dumps(schema)}: {text!r}: {error}")

print(f"{num_valid} valid, {len(invalid)} invalid")
print("\n".join(invalid))
sys.exit(1 if invalid else 0)
