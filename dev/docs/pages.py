"""Hooks of MkDocs: pages of files outside ``docs``, and the options of the command line from its parser.

A link such as ``../dags/kafka_to_s3_daily.py`` works on GitHub as it is. In the site it leads to a page that is made of
the file, so one text serves both, and a link to a file that does not exist fails the build.
"""

from __future__ import annotations

import argparse
import os
import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mkdocs.structure.files import File, InclusionLevel

from airflow_provider_kafka_s3.cli.main import parser

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

__all__ = ["on_files", "on_page_markdown"]

ROOT: Final = Path(__file__).resolve().parents[2]
FOLDER: Final = "repository/"
"""Folder of the site for pages of files outside ``docs``."""
OPTIONS: Final = "<!-- the options of every command -->"

_LINK: Final = re.compile(r"(?<=\]\()([^)\s:#]+)(?=[#)])")
_LANGUAGES: Final = {".py": "python", ".json": "json", ".yaml": "yaml", ".xml": "xml", ".sh": "sh"}


def on_files(files: Files, *, config: MkDocsConfig) -> Files:
    """Add a page for each file outside ``docs`` that a page links to, and for those that these link to."""
    pages = list(files.documentation_pages())
    while pages:
        page = pages.pop()
        for target in filter(_is_outside, _targets(page)):
            uri = _uri(target)
            if files.get_file_from_path(uri) is None:
                content = _content(target)
                added = File.generated(config, uri, content=content, inclusion=InclusionLevel.NOT_IN_NAV)
                files.append(added)
                pages.append(added)
    return files


def on_page_markdown(markdown: str, *, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001
    """Point links to the added pages, and insert the options of the command line."""
    source = _source(page.file.src_uri)

    def lead(link: re.Match[str]) -> str:
        target = _target(source, link[0])
        if not (_is_outside(target) or _is_outside(source)) or not (ROOT / target).is_file():
            return link[0]
        return posixpath.relpath(_uri(target), posixpath.dirname(page.file.src_uri) or ".")

    markdown = _LINK.sub(lead, markdown)
    return markdown.replace(OPTIONS, _options(parser())) if OPTIONS in markdown else markdown


def _targets(page: File) -> list[str]:
    source = _source(page.src_uri)
    return [_target(source, link) for link in _LINK.findall(page.content_string)]


def _source(uri: str) -> str:
    """The file of the repository that a page is made of."""
    return uri.removeprefix(FOLDER) if uri.startswith(FOLDER) else f"docs/{uri}"


def _target(source: str, link: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(source), link))


def _is_outside(path: str) -> bool:
    return not path.startswith(("docs/", "../")) and (ROOT / path).is_file()


def _uri(path: str) -> str:
    if path.startswith("docs/"):
        return path.removeprefix("docs/")
    return f"{FOLDER}{path}" if path.endswith(".md") else f"{FOLDER}{path}.md"


def _content(path: str) -> str:
    text = (ROOT / path).read_text()
    if path.endswith(".md"):
        return text
    return f"# {path}\n\n````{_LANGUAGES.get(Path(path).suffix, 'text')}\n{text}````\n"


def _options(top: argparse.ArgumentParser) -> str:
    """The help of each command, as the command prints it."""
    os.environ["COLUMNS"] = "110"
    (commands,) = [action for action in top._actions if isinstance(action, argparse._SubParsersAction)]
    helps = [(name, command.format_help()) for name, command in commands.choices.items()]
    return "\n\n".join(f"## kafka-s3 {name}\n\n```text\n{text}```" for name, text in helps)
