"""Extension of Griffe, which reads the code for the reference."""

from __future__ import annotations

import re
from typing import Any, Final

import griffe

__all__ = ["PublicText"]

_ROLE: Final = re.compile(r":(?:class|func|meth|mod|attr|data|exc):`(~?)([\w.]+)`")
_LITERAL: Final = re.compile(r"^ *::\n", re.MULTILINE)


class PublicText(griffe.Extension):
    """Converts docstrings and annotations for the site.

    Roles of Sphinx, such as ``:class:`Layout```, become links, or code where the site has no page about their target,
    and its literal blocks become those of Markdown. ``Annotated[int, Meta(…)]`` becomes ``int``, as the description has
    the bounds, and the name of such a type or of a ``Literal`` is replaced by its definition.
    """

    def on_package(self, *, pkg: griffe.Module, loader: griffe.GriffeLoader, **_: Any) -> None:  # noqa: ARG002
        """Change the package when all its names are known."""
        self._change(pkg)

    def _change(self, owner: griffe.Object) -> None:
        if owner.docstring is not None:
            text = _LITERAL.sub("", owner.docstring.value)
            owner.docstring.value = _ROLE.sub(lambda role: _link(owner, role), text)
        if isinstance(owner, griffe.Attribute):
            owner.annotation = _plain(owner.annotation, owner)
        if isinstance(owner, griffe.Function):
            for parameter in owner.parameters:
                parameter.annotation = _plain(parameter.annotation, owner)
        for member in owner.members.values():
            if isinstance(member, griffe.Object):
                self._change(member)


def _link(owner: griffe.Object, role: re.Match[str]) -> str:
    short, name = role.groups()
    try:
        path = owner.resolve(name)
    except griffe.NameResolutionError:
        path = name
    shown = name.rpartition(".")[2] if short else name
    return f'<autoref identifier="{path}" optional>`{shown}`</autoref>'


def _plain(annotation: griffe.Expr | str | None, owner: griffe.Object) -> griffe.Expr | str | None:
    if isinstance(annotation, griffe.ExprBinOp):
        annotation.left = _plain(annotation.left, owner) or annotation.left
        annotation.right = _plain(annotation.right, owner) or annotation.right
    if isinstance(annotation, griffe.ExprName):
        try:
            named = owner.modules_collection[annotation.canonical_path]
        except (KeyError, griffe.AliasResolutionError):
            return annotation
        value = named.value if named.is_attribute else None
        is_type = isinstance(value, griffe.ExprSubscript) and str(value.left) in ("Annotated", "Literal")
        return _plain(value, owner) if is_type else annotation
    if isinstance(annotation, griffe.ExprSubscript) and str(annotation.left) == "Annotated":
        return annotation.slice.elements[0] if isinstance(annotation.slice, griffe.ExprTuple) else annotation
    return annotation
