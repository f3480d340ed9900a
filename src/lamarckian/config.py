"""Settings: strict records, dotted overrides, YAML that means what it says.

A setting is a field of a ``msgspec.Struct`` declared with ``frozen=True, kw_only=True,
forbid_unknown_fields=True``; its range and its meaning stand beside it in
``Annotated[type, msgspec.Meta(gt=..., description=...)]``. Records nest, and a field may be a
union of tagged records (the tag chooses the variant).

Nothing is ignored: an unknown key, a key given twice, a value of the wrong type or out of range
raises :class:`~lamarckian.errors.ConfigError` with the full dotted key.

YAML here follows the 1.2 core schema, not PyYAML's 1.1 default: ``3e-4`` is a number, ``yes`` is a
word, ``1:30`` is a word, ``010`` is ten. Underscores may group digits (``2_000_000``).
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, get_args

import msgspec

from lamarckian.errors import ConfigError, nearest
from lamarckian.schema import (
    Setting,
    bare_type,
    constraint_text,
    defaults_of,
    describe,
    is_mapping,
    literals_of,
    members_of,
    records_of,
    type_text,
    variants,
)

__all__ = [
    "CommandText",
    "Setting",
    "apply",
    "build",
    "describe",
    "dump_yaml",
    "load_yaml",
    "overrides",
    "parse_yaml",
    "variants",
]

Record = TypeVar("Record", bound=msgspec.Struct)

_INT = re.compile(r"[-+]?[0-9](?:_?[0-9])*\Z")
_HEX = re.compile(r"0x[0-9a-fA-F]+\Z")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9](?:_?[0-9])*(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z")
_SPECIAL = re.compile(r"(?:[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))\Z")
_NULL = re.compile(r"(?:~|null|Null|NULL|)\Z")
_BOOL = re.compile(r"(?:true|True|TRUE|false|False|FALSE)\Z")


class CommandText(str):
    """A value as typed on the command line: its type is decided by the field it is meant for."""

    __slots__ = ()


# --- YAML -----------------------------------------------------------------------------------------


@functools.cache
def _yaml() -> Any:
    """Return ``(load, dump)`` over a loader and a dumper that share one set of scalar rules."""
    import yaml  # costs 20 ms, which a plain ``import lamarckian`` should not pay

    class Loader(yaml.SafeLoader):
        yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - as its base declares it

        def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
            seen: set[Any] = set()
            for key_node, _ in node.value:
                key = self.construct_object(key_node, deep=True)
                if not isinstance(key, str):
                    raise ConfigError(
                        f"line {key_node.start_mark.line + 1}: expected a text as key, got {key!r}"
                    )
                if key in seen:
                    line = key_node.start_mark.line + 1
                    raise ConfigError(f"line {line}: key '{key}' stands twice; keep one")
                seen.add(key)
            return super().construct_mapping(node, deep=deep)

    class Dumper(yaml.SafeDumper):
        yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - as its base declares it

        def increase_indent(self, flow: bool = False, indentless: bool = False) -> Any:
            return super().increase_indent(flow, False)

    digits = list("-+0123456789")
    rules: list[tuple[str, re.Pattern[str], list[str]]] = [
        ("null", _NULL, ["~", "n", "N", ""]),
        ("bool", _BOOL, list("tTfF")),
        ("int", _INT, digits),
        ("int", _HEX, ["0"]),
        ("float", _FLOAT, [*digits, "."]),
        ("float", _SPECIAL, ["-", "+", "."]),
    ]
    for kind in (Loader, Dumper):
        for tag, pattern, first in rules:
            kind.add_implicit_resolver(f"tag:yaml.org,2002:{tag}", pattern, first)

    def integer(loader: Any, node: Any) -> int:
        text = loader.construct_scalar(node).replace("_", "")
        return int(text, 16) if text.startswith("0x") else int(text)

    def number(loader: Any, node: Any) -> float:
        text = loader.construct_scalar(node).lower().replace("_", "")
        return float(text.replace(".inf", "inf").replace(".nan", "nan"))

    Loader.add_constructor("tag:yaml.org,2002:int", integer)
    Loader.add_constructor("tag:yaml.org,2002:float", number)

    def load(text: str) -> Any:
        try:
            return yaml.load(text, Loader=Loader)  # a SafeLoader: builds plain data only
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            place = f"line {mark.line + 1}: " if mark else ""
            problem = getattr(error, "problem", None) or str(error)
            raise ConfigError(f"{place}not valid YAML: {problem}") from None

    def dump(data: Any) -> str:
        return str(yaml.dump(data, Dumper=Dumper, sort_keys=False, allow_unicode=True, width=100))

    return load, dump


def parse_yaml(text: str) -> Any:
    """Return the plain data in ``text``; ConfigError names the line of what is wrong."""
    return _yaml()[0](text)


def dump_yaml(record: Any) -> str:
    """Return ``record`` (a Struct or plain data) as YAML; :func:`load_yaml` reads it back equal."""
    return str(_yaml()[1](msgspec.to_builtins(record)))


def load_yaml(path: str | Path, kind: type[Record]) -> Record:
    """Read a record of type ``kind`` from a YAML file; keys left out keep their default."""
    file = Path(path)
    try:
        text = file.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{file}: cannot read the settings: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{file}: the settings are not UTF-8 text") from None
    try:
        data = parse_yaml(text)
        if data is None:
            data = {}
        if not isinstance(data, Mapping):
            raise ConfigError(f"expected keys with values, got {_shown(data)}")
        return build(kind, data)
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}") from None


# --- overrides ------------------------------------------------------------------------------------


def overrides(args: Sequence[str]) -> dict[str, Any]:
    """Turn ``--a.b 3e-4`` and ``--a.b=3e-4`` into ``{"a.b": value}`` for :func:`apply`.

    Dashes inside names read as underscores. Values are YAML (``true``, ``null``, ``[256, 128]``,
    ``{a: 1}``); their type is settled by :func:`apply`, so that ``--name 3`` may be a text.
    """
    found: dict[str, Any] = {}
    position = 0
    while position < len(args):
        token = args[position]
        position += 1
        if not token.startswith("--") or len(token) < 3:
            raise ConfigError(f"unexpected argument '{token}'; settings are written --key value")
        name, equals, text = token[2:].partition("=")
        if not equals:
            if position >= len(args) or args[position].startswith("--"):
                raise ConfigError(f"--{name} needs a value, e.g. --{name} true")
            text = args[position]
            position += 1
        key = name.replace("-", "_")
        if key in found:
            raise ConfigError(f"--{name} is given twice; keep one")
        found[key] = CommandText(text)
    return found


def apply(record: Record, updates: Mapping[str, Any]) -> Record:
    """Return ``record`` with dotted ``updates``; types and ranges hold again afterwards.

    A mapping given for a nested record changes the keys it names. The name of a variant given for
    a union of records (``{"algorithm": "ppo"}``) chooses that variant with its defaults.
    """
    return _assemble(type(record), msgspec.to_builtins(record), updates)


def build(kind: type[Record], updates: Mapping[str, Any]) -> Record:
    """Return a record of type ``kind`` from its defaults and ``updates`` (as in :func:`apply`)."""
    return _assemble(kind, defaults_of(kind), updates)


def _assemble(kind: type[Record], tree: dict[str, Any], updates: Mapping[str, Any]) -> Record:
    # Short keys first: choosing a variant comes before the settings of that variant.
    for key in sorted(updates, key=lambda dotted: dotted.count(".")):
        _assign(kind, tree, key.split("."), updates[key], ())
    try:
        return msgspec.convert(tree, kind)
    except msgspec.ValidationError as error:
        text, _, where = str(error).partition(" - at `$")
        key = where.rstrip("`").lstrip(".")
        missing = re.match(r"Object missing required field `(.+)`", text)
        if missing:
            key = f"{key}.{missing[1]}".lstrip(".")
            raise ConfigError(f"{key}: a value is required and none is given") from None
        raise ConfigError(f"{key}: {text}" if key else text) from None


def _assign(
    kind: type[msgspec.Struct],
    tree: dict[str, Any],
    keys: Sequence[str],
    value: Any,
    above: tuple[str, ...],
) -> None:
    fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    path = (*above, keys[0])
    where = ".".join(path)
    if keys[0] not in fields:
        raise _unknown(where, above, fields)
    annotation = fields[keys[0]].type
    variants = records_of(annotation)
    if not variants:
        if len(keys) == 1:
            tree[keys[0]] = _fit(annotation, value, where)
        elif is_mapping(annotation):
            entries = tree.setdefault(keys[0], {})
            item = (get_args(bare_type(annotation)) or (str, Any))[1]
            rest = ".".join(keys[1:])
            entries[rest] = _fit(item, value, f"{where}.{rest}")
        else:
            full = ".".join((*path, *keys[1:]))
            raise ConfigError(f"{full}: '{where}' is one value, not a group of settings")
        return
    if isinstance(value, CommandText) and len(keys) == 1:
        value = _group_value(value)
    if len(keys) == 1 and isinstance(value, Mapping):
        tag_field = variants[0].__struct_config__.tag_field
        if tag_field in value:
            _choose_tag(tree, keys[0], variants, value[tag_field], where)
        for name, item_value in value.items():
            if name != tag_field:
                _assign(kind, tree, [keys[0], *str(name).split(".")], item_value, above)
        if not value and tree.get(keys[0]) is None:
            tree[keys[0]] = defaults_of(_current(variants, None, where))
    elif len(keys) == 1 and value is None and type(None) in members_of(annotation):
        tree[keys[0]] = None
    elif len(keys) == 1 and isinstance(value, msgspec.Struct):
        tree[keys[0]] = msgspec.to_builtins(value)
    elif len(keys) == 1:
        if isinstance(value, str) and variants[0].__struct_config__.tag_field:
            _choose_tag(tree, keys[0], variants, value, where)
        else:
            raise ConfigError(
                f"{where}: expected a group of settings ({where}.KEY), got {_shown(value)}"
            )
    elif keys[1] == variants[0].__struct_config__.tag_field and len(keys) == 2:
        _choose_tag(tree, keys[0], variants, value, where)
    else:
        current = tree.get(keys[0])
        chosen = _current(variants, current, where)
        if not isinstance(current, dict):
            current = tree[keys[0]] = defaults_of(chosen)
        _assign(chosen, current, keys[1:], value, path)


def _group_value(value: CommandText) -> Any:
    try:
        parsed = parse_yaml(value)
    except ConfigError:
        return str(value)
    return parsed if isinstance(parsed, Mapping) or parsed is None else str(value)


def _choose_tag(
    tree: dict[str, Any], key: str, variants: Sequence[type[msgspec.Struct]], tag: Any, where: str
) -> None:
    tags = {str(variant.__struct_config__.tag): variant for variant in variants}
    if str(tag) not in tags:
        raise ConfigError(
            f"{where}: expected one of {', '.join(tags)}, got {_shown(tag)}"
            f"{nearest(str(tag), tags)}"
        )
    chosen = tags[str(tag)]
    current = tree.get(key)
    tag_field = str(chosen.__struct_config__.tag_field)
    if not isinstance(current, dict) or current.get(tag_field) != chosen.__struct_config__.tag:
        tree[key] = defaults_of(chosen)


def _current(
    variants: Sequence[type[msgspec.Struct]], current: Any, where: str
) -> type[msgspec.Struct]:
    if len(variants) == 1:
        return variants[0]
    tags = {variant.__struct_config__.tag: variant for variant in variants}
    if isinstance(current, dict):
        tag = current.get(variants[0].__struct_config__.tag_field)
        if tag in tags:
            return tags[tag]
    raise ConfigError(f"{where}: choose one of {', '.join(map(str, tags))} first (--{where} NAME)")


def _unknown(where: str, above: tuple[str, ...], fields: Mapping[str, Any]) -> ConfigError:
    prefix = "".join(f"{part}." for part in above)
    known = [prefix + name for name in fields]
    hint = nearest(where, known) or "."
    return ConfigError(f"unknown setting '{where}'{hint} Known: {', '.join(known)}")


def _fit(annotation: Any, value: Any, where: str) -> Any:
    """Return ``value`` as plain data that fits ``annotation``, or raise ConfigError."""
    if isinstance(value, CommandText):
        candidates = list(_readings(value))
    else:
        candidates = [msgspec.to_builtins(value)]
    candidates += [
        int(each) for each in candidates if isinstance(each, float) and each.is_integer()
    ]
    problem = ""
    for candidate in candidates:
        if not _finite(candidate):
            problem = problem or "expected a finite number"
            continue
        try:
            return msgspec.to_builtins(msgspec.convert(candidate, annotation))
        except msgspec.ValidationError as error:
            inner = str(error).partition(" - at `$")[2].rstrip("`")
            problem = problem or (f"at {inner}: {error}".partition(" - at")[0] if inner else "")
    expected = type_text(annotation)
    limits = constraint_text(annotation)
    wanted = f"expected {expected}{f' ({limits})' if limits else ''}"
    choices = [each for each in literals_of(annotation) if isinstance(each, str)]
    hint = nearest(str(value), choices) if choices else ""
    if problem.startswith("expected"):
        wanted = problem
    elif problem:
        wanted += f" [{problem}]"
    shown = f"'{value}'" if isinstance(value, CommandText) else _shown(value)
    raise ConfigError(f"{where}: {wanted}, got {shown}{hint}")


def _readings(text: CommandText) -> Iterator[Any]:
    """Yield what ``text`` may mean, the likeliest first; the field's type picks."""
    raw = str(text)
    for version in (raw, f"[{raw}]") if "," in raw else (raw,):
        try:
            yield parse_yaml(version)
        except ConfigError:
            continue
    yield raw
    if raw in ("none", "None"):
        yield None


def _finite(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, Mapping):
        return all(_finite(each) for each in value.values())
    if isinstance(value, (list, tuple)):
        return all(_finite(each) for each in value)
    return True


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
