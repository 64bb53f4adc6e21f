"""Texts of exported files: ``*.txt`` beside this one."""

from pathlib import Path

from trainer.frameworks.common.template_files import Templates

fill = Templates(Path(__file__).parent).fill
