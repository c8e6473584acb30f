"""Writes a GGUF model and its tokenizer as a bf16 checkpoint; arguments: GGUF_FILE OUT_FOLDER.

Runs in an interpreter with torch, transformers, gguf and accelerate, and imports nothing from the harness.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import transformers  # type: ignore[import-not-found]


def main(gguf: Path, out: Path) -> None:
    """Converts a GGUF file; newer versions of transformers can only save the model dequantized."""
    config = getattr(transformers, "GgufConfig", None)
    options = {"quantization_config": config(dequantize=True)} if config else {}
    source = {"pretrained_model_name_or_path": str(gguf.parent), "gguf_file": gguf.name}
    model = transformers.AutoModelForCausalLM.from_pretrained(**source, **options, dtype=torch.bfloat16)
    model.save_pretrained(out)
    transformers.AutoTokenizer.from_pretrained(**source).save_pretrained(out)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
