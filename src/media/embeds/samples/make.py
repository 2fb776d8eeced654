"""Writes the samples of the tests: files as torch.save and safetensors write them.

Usage: python make.py (with torch and safetensors)
"""

import io
import os
import pathlib
import zipfile

import torch
from safetensors.torch import save

HERE = pathlib.Path(__file__).parent


def written(name, value, **options):
    buffer = io.BytesIO()
    torch.save(value, buffer, **options)
    (HERE / name).write_bytes(buffer.getvalue())


class Shell:
    def __reduce__(self):
        return (os.system, ("true",))


counted = torch.arange(6, dtype=torch.float32).reshape(2, 3)
written("float.pt", counted)
written("protocol4.pt", counted, pickle_protocol=4)
written("half.pt", counted.half())
written("bfloat16.pt", counted.bfloat16())
written("double.pt", counted.double())
# A view: columns of a larger storage, read by strides.
written("view.pt", torch.arange(24, dtype=torch.float32).reshape(4, 6).t()[1:4, 1:3])
written("parameter.pt", torch.nn.Parameter(counted))
written("grid.pt", torch.tensor([[1, 4, 6]]))
written("scalar.pt", torch.tensor(2.5))
written("expanded.pt", torch.zeros(1).expand(1 << 20, 1 << 10))
written("dict.pt", {"image_embeds": counted})
written("complex.pt", counted.to(torch.complex64))
written("shell.pt", Shell())
written("legacy.pt", counted, _use_new_zipfile_serialization=False)
(HERE / "float.safetensors").write_bytes(save({"image_embeds": counted}))
(HERE / "two.safetensors").write_bytes(save({"a": counted, "b": counted.clone()}))

# The same archive, deflated: a small file that would become a large one.
source = zipfile.ZipFile(HERE / "float.pt")
with zipfile.ZipFile(HERE / "deflated.pt", "w", zipfile.ZIP_DEFLATED) as target:
    for entry in source.infolist():
        target.writestr(entry.filename, source.read(entry))
