"""Plugin module that ms-swift imports: rewards, prompts, and knobs that ms-swift has no argument for. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from search_spaces.configuration import KnobValue
from trainer.child import contract
from trainer.frameworks.common.exported import PROMPTS, ExportRequest, Rewards, fill, rewards_of
from trainer.frameworks.ms_swift.keys import seams

PLUGIN = "autotune_plugin.py"
"""File name that no plugin of the user's has: ms-swift imports plugins by file name."""
TRAIN = f"{PROMPTS}/train.jsonl"
OWN = "ms_swift"
"""Kind of a reward that ms-swift, or a plugin of the user's, defines."""
SEAM_MODULE = "autotune_seams"
_SEAMS = Path(contract.__file__).parent.parent / "frameworks" / "ms_swift" / "seams.py"


@dataclass(frozen=True)
class Plugin:
    """Contents of the plugin."""

    rewards: Rewards
    names: tuple[str, ...]
    """Value of ``reward_funcs``."""
    wrapped: Mapping[str, str] = field(default_factory=dict)
    """Registered name -> path of the function, as ``module.name``."""
    prompts: bool = True
    seams: Mapping[str, KnobValue] = field(default_factory=dict)
    others: tuple[str, ...] = ()
    """The user's own plugins, as the user writes their paths."""
    raw: bool = False
    """Whether prompts are plain texts, which reach the model without a template."""

    @property
    def needed(self) -> bool:
        """Whether the run needs the plugin."""
        return bool(self.wrapped or self.prompts or self.seams)


def plugin_of(request: ExportRequest) -> Plugin:
    """Builds the plugin of an export. Raises ValueError for an unknown kind of reward."""
    made = rewards_of([spec for spec in request.rewards if spec.kind != OWN])
    wrapped: dict[str, str] = {}
    registered = iter(made.names)
    names: list[str] = []
    for spec in request.rewards:
        if spec.kind == OWN:
            names.append(spec.name)
            continue
        place = next(registered)
        name = place.rpartition(".")[2]
        name = name if name not in names else f"{name}_{len(names)}"
        wrapped[name] = place if "." in place else f"trl.rewards.{place}"
        names.append(name)
    prompts = not (request.user_config and request.own_data)
    others = tuple(request.passthrough.get("external_plugins") or ())
    raw = str({**request.added, **request.passthrough}.get("use_chat_template", True)).lower() == "false"
    return Plugin(made, tuple(names), wrapped, prompts, seams(request.configuration), others, raw)


def plugin_files(plugin: Plugin) -> dict[str, str]:
    """Returns the files of the plugin and its modules; empty if ms-swift needs none."""
    if not plugin.needed:
        return {}
    parts = [fill(__file__, "plugin", folder=repr(plugin.rewards.folder))]
    if plugin.wrapped:
        lines = [f"_register({name!r}, {place!r})" for name, place in plugin.wrapped.items()]
        parts += [fill(__file__, "plugin_rewards", raw=repr(plugin.raw)), "\n".join(lines) + "\n"]
    if plugin.prompts:
        parts.append(fill(__file__, "plugin_prompts", path=repr(TRAIN)))
    files = {**plugin.rewards.files}
    if plugin.seams:
        parts.append(fill(__file__, "plugin_seams", module=SEAM_MODULE, seams=repr(dict(plugin.seams))))
        files[f"{SEAM_MODULE}.py"] = _SEAMS.read_text(encoding="utf-8")
    files[PLUGIN] = "\n\n".join(part.strip("\n") for part in parts) + "\n"
    return files
