"""GGUF_FILE OUT_FOLDER: writes a GGUF model and its tokenizer as a plain bf16 checkpoint.

Runs in an interpreter that has torch, transformers, gguf and accelerate; imports nothing of the harness.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import transformers  # type: ignore[import-not-found]


def main(gguf: Path, out: Path) -> None:
    """Loads by transformers' GGUF support; `dequantize` (where it exists) or saving would be refused."""
    config = getattr(transformers, "GgufConfig", None)
    options = {"quantization_config": config(dequantize=True)} if config else {}
    source = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
    model = transformers.AutoModelForCausalLM.from_pretrained(**source, **options, dtype=torch.bfloat16)
    model.save_pretrained(out)
    transformers.AutoTokenizer.from_pretrained(**source).save_pretrained(out)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
