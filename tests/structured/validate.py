"""Validates texts against their JSON schemas: each line of the file is {"schema": ..., "text": ...}.

Exits with 1 if a text is invalid, and with 3 if the package `jsonschema` is not installed.
"""
import json
import sys

try:
    from jsonschema import Draft202012Validator, FormatChecker
    from jsonschema.validators import validator_for
except ImportError as error:
    print(error)
    sys.exit(3)


# The package checks times as draft 3 does, which has no offsets.
FORMATS = FormatChecker(format for format in FormatChecker.checkers if format != "time")


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
            validator(schema, format_checker=FORMATS).validate(value)
            num_valid += 1
        except Exception as error:
            invalid.append(f"{json.dumps(schema)}: {text!r}: {error}")

print(f"{num_valid} valid, {len(invalid)} invalid")
print("\n".join(invalid))
sys.exit(1 if invalid else 0)
