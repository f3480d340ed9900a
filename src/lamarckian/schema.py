"""What a record of settings declares: types, limits, meanings, variants.

Reads ``msgspec.Struct`` classes whose fields are annotated as :mod:`lamarckian.config` says; used
to check settings, to word its errors, and to list them (:func:`describe`).
"""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args, get_origin

import msgspec

_NAMES: dict[Any, str] = {
    bool: "true or false",
    int: "an integer",
    float: "a number",
    str: "a text",
    type(None): "null",
}


@dataclass(frozen=True, slots=True)
class Setting:
    """One row of :func:`describe`: everything there is to know about one key."""

    key: str
    type: str
    default: Any
    constraint: str
    doc: str
    required: bool = False


def defaults_of(kind: type[msgspec.Struct]) -> dict[str, Any]:
    """Return the defaults of ``kind`` as plain data; required fields are left out."""
    tree: dict[str, Any] = {}
    config = kind.__struct_config__
    if config.tag_field is not None:
        tree[config.tag_field] = config.tag
    for field in msgspec.structs.fields(kind):
        if field.default is not msgspec.NODEFAULT:
            tree[field.encode_name] = msgspec.to_builtins(field.default)
        elif field.default_factory is not msgspec.NODEFAULT:
            tree[field.encode_name] = msgspec.to_builtins(field.default_factory())
    return tree


def bare_type(annotation: Any) -> Any:
    while get_origin(annotation) is Annotated:
        annotation = get_args(annotation)[0]
    return annotation


def members_of(annotation: Any) -> tuple[Any, ...]:
    """Return the members of a union, or the type itself."""
    bare = bare_type(annotation)
    if get_origin(bare) in (typing.Union, types.UnionType):
        return tuple(member for each in get_args(bare) for member in members_of(each))
    return (annotation,)


def records_of(annotation: Any) -> list[type[msgspec.Struct]]:
    bare = [bare_type(member) for member in members_of(annotation)]
    return [each for each in bare if isinstance(each, type) and issubclass(each, msgspec.Struct)]


def is_mapping(annotation: Any) -> bool:
    bare = bare_type(annotation)
    return (get_origin(bare) or bare) in (dict, Mapping)


def literals_of(annotation: Any) -> list[Any]:
    return [
        value
        for member in members_of(annotation)
        if get_origin(bare_type(member)) is Literal
        for value in get_args(bare_type(member))
    ]


def _metas(annotation: Any) -> Iterator[msgspec.Meta]:
    if get_origin(annotation) is Annotated:
        inner, *extra = get_args(annotation)
        yield from (each for each in extra if isinstance(each, msgspec.Meta))
        yield from _metas(inner)
    elif len(members_of(annotation)) > 1:
        for member in members_of(annotation):
            yield from _metas(member)


def constraint_text(annotation: Any) -> str:
    """Return the declared limits as a text, e.g. ``> 0, <= 1``."""
    parts = []
    signs = {"gt": ">", "ge": ">=", "lt": "<", "le": "<=", "multiple_of": "multiple of"}
    for meta in _metas(annotation):
        for name, sign in signs.items():
            if (limit := getattr(meta, name)) is not None:
                # typing keeps the first of `gt=0` and `gt=0.0`, which are equal, for both.
                parts.append(f"{sign} {str(limit).removesuffix('.0')}")
        if meta.pattern is not None:
            parts.append(f"matches {meta.pattern}")
        if meta.min_length is not None:
            parts.append(f"length >= {meta.min_length}")
        if meta.max_length is not None:
            parts.append(f"length <= {meta.max_length}")
    return ", ".join(parts)


def type_text(annotation: Any) -> str:
    members = members_of(annotation)
    if len(members) > 1:
        return " or ".join(dict.fromkeys(type_text(member) for member in members))
    bare = bare_type(annotation)
    origin, args = get_origin(bare), get_args(bare)
    if origin is Literal:
        return "one of " + ", ".join(str(value) for value in args)
    if origin in (list, tuple, set, frozenset, Sequence):
        inner = [each for each in args if each is not Ellipsis]
        return f"a list of [{', '.join(dict.fromkeys(type_text(each) for each in inner))}]"
    if is_mapping(bare):
        return "names with values"
    if isinstance(bare, type) and issubclass(bare, msgspec.Struct):
        return str(bare.__struct_config__.tag or bare.__name__)
    return _NAMES.get(bare, getattr(bare, "__name__", str(bare)))


def describe(
    kind: type[msgspec.Struct], prefix: str = "", record: msgspec.Struct | None = None
) -> list[Setting]:
    """Return one :class:`Setting` for each key of ``kind``, nested keys dotted.

    With ``record`` its values stand in the place of the defaults. Of a union of tagged records the
    row of the key lists the variants, and the rows of the variant that is the default follow.
    """
    rows: list[Setting] = []
    for field in msgspec.structs.fields(kind):
        key = prefix + field.encode_name
        required = False
        default: Any
        if record is not None:
            default = getattr(record, field.name)
        elif field.default is not msgspec.NODEFAULT:
            default = field.default
        elif field.default_factory is not msgspec.NODEFAULT:
            default = field.default_factory()
        else:
            default, required = None, True
        doc = next((meta.description for meta in _metas(field.type) if meta.description), "")
        variants = records_of(field.type)
        chosen = type(default) if isinstance(default, msgspec.Struct) else None
        if not variants or len(variants) > 1 or chosen is None:
            shown = chosen.__struct_config__.tag if chosen else msgspec.to_builtins(default)
            rows.append(
                Setting(
                    key,
                    type_text(field.type),
                    shown,
                    constraint_text(field.type),
                    doc or "",
                    required,
                )
            )
        inner = chosen or (variants[0] if len(variants) == 1 else None)
        if inner is not None:
            rows += describe(inner, f"{key}.", default if chosen else None)
    return rows


def variants(kind: type[msgspec.Struct], key: str) -> dict[str, type[msgspec.Struct]]:
    """Return the records the field ``key`` of ``kind`` may hold, by the name that chooses them."""
    for field in msgspec.structs.fields(kind):
        if field.encode_name == key:
            return {type_text(each): each for each in records_of(field.type)}
    return {}
