"""Extension of Griffe: the roles of Sphinx in docstrings, such as ``:class:`Layout```, become links of the site."""

from __future__ import annotations

import re
from typing import Any, Final

import griffe

__all__ = ["SphinxRoles"]

_ROLE: Final = re.compile(r":(?:class|func|meth|mod|attr|data|exc):`(~?)([\w.]+)`")


class SphinxRoles(griffe.Extension):
    """Replaces each role by a link that is plain code where the site has no page about its target."""

    def on_package(self, *, pkg: griffe.Module, loader: griffe.GriffeLoader, **_: Any) -> None:  # noqa: ARG002
        """Change the docstrings of the package, whose names are all known by now."""
        self._change(pkg)

    def _change(self, owner: griffe.Object) -> None:
        if owner.docstring is not None:
            owner.docstring.value = _ROLE.sub(lambda role: _link(owner, role), owner.docstring.value)
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
