"""``lamarckian export``: write a trained policy for use in a game."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from lamarckian.cli import output
from lamarckian.cli.evaluate import add_checkpoint, which


def add(subparsers: Any) -> argparse.ArgumentParser:
    """Add the parser of this command."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "export",
        help="write a policy for use in a game (ONNX)",
        description="Write the whole act path of a policy (normalisation, network, masks, bounds) "
        "as ONNX, checked against the policy itself before the file is left in place.",
    )
    parser.add_argument("run", type=Path, help="run folder")
    parser.add_argument("-o", "--output", type=Path, required=True, help="file to write")
    parser.add_argument("--group", help="which policy, if the run trains several")
    parser.add_argument(
        "--format",
        choices=("onnx", "bundle"),
        default="onnx",
        help="onnx, or a bundle (weights and JSON) for lamarckian itself",
    )
    add_checkpoint(parser)
    output.add_options(parser)
    return parser


def run(namespace: argparse.Namespace, extra: list[str]) -> int:
    """Export and print what was written and how far it was checked."""
    from lamarckian.errors import ConfigError, nearest
    from lamarckian.rl.bundle import save_bundle
    from lamarckian.rl.export import export_onnx
    from lamarckian.runs.folder import Run
    from lamarckian.runs.training import load_policies

    policies = load_policies(Run.open(namespace.run), which(namespace)).policies
    group = namespace.group or next(iter(policies))
    if group not in policies:
        raise ConfigError(
            f"--group: the run has no policy {group!r}{nearest(group, policies)}; "
            f"policies: {', '.join(policies)}"
        )
    if namespace.group is None and len(policies) > 1:
        raise ConfigError(f"--group: the run trains several policies: {', '.join(policies)}")
    document: dict[str, Any] = {"path": namespace.output, "group": group}
    text = f"wrote {namespace.output}"
    try:
        if namespace.format == "bundle":
            save_bundle(policies[group], namespace.output)
        else:
            difference = export_onnx(policies[group], namespace.output)
            document["largest_difference"] = difference
            text += f"; differs from the policy by at most {difference:.1e}"
    except OSError as error:
        raise ConfigError(f"-o {namespace.output}: cannot write it: {error.strerror}") from None
    output.emit(namespace, document, text)
    return 0
