"""A package's README cut into what its page on the site shows: idea, example, figures, sections."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from markdown_it import MarkdownIt
from markdown_it.common.utils import escapeHtml
from markdown_it.renderer import RendererHTML
from markdown_it.tree import SyntaxTreeNode
from markupsafe import Markup

CLAIMS = re.compile(r"<!-- claims:start -->.*?<!-- claims:end -->", re.DOTALL)
PLACE_OF_CLAIMS = "claims-table-stands-here"


def _markdown() -> MarkdownIt:
    """CommonMark with tables. HTML is shown, not obeyed; nothing is loaded; only links that lead out remain links."""
    md = MarkdownIt("commonmark", {"html": False}).enable("table")

    def link(self: RendererHTML, tokens, index, options, env) -> str:
        if not re.match(r"(https?|mailto):", str(tokens[index].attrs.get("href", ""))):
            tokens[index].attrs.pop("href", None)  # a path of the checkout leads nowhere on the site
        return self.renderToken(tokens, index, options, env)

    def heading_cell(self: RendererHTML, tokens, index, options, env) -> str:
        tokens[index].attrSet("scope", "col")
        return self.renderToken(tokens, index, options, env)

    def code(self: RendererHTML, tokens, index, options, env) -> str:
        return f'<pre tabindex="0"><code>{escapeHtml(tokens[index].content)}</code></pre>\n'

    md.add_render_rule("link_open", link)
    md.add_render_rule("th_open", heading_cell)
    md.add_render_rule("fence", code)
    md.add_render_rule("code_block", code)
    md.add_render_rule("image", lambda self, tokens, index, options, env: escapeHtml(tokens[index].content))
    md.add_render_rule("table_open", lambda *_: '<div class="scroll" role="group" tabindex="0"><table>\n')
    md.add_render_rule("table_close", lambda *_: "</table></div>\n")
    return md


MARKDOWN = _markdown()


def inline(text: str) -> Markup:
    """One line of Markdown (code, emphasis, links) as HTML."""
    return Markup(MARKDOWN.renderInline(text))


@dataclass
class Figure:
    """A picture of the README's `figures` folder, with the paragraphs that follow it."""

    name: str
    alt: str
    blocks: list[SyntaxTreeNode] = field(default_factory=list)

    @property
    def caption(self) -> Markup:
        return _html(self.blocks)


@dataclass
class Section:
    """One second-level heading with what stands below it, pictures taken out."""

    title: str
    blocks: list[SyntaxTreeNode] = field(default_factory=list)

    @property
    def anchor(self) -> str:
        return "readme-" + re.sub(r"\W+", "-", self.title.lower()).strip("-")

    @property
    def html(self) -> Markup:
        return _html(self.blocks)


@dataclass
class Readme:
    """`idea`: the paragraphs under the title; `example`: what follows before the first section; `note`: the text beside
    the claims table."""

    idea: Markup
    example: Markup
    note: Markup
    figures: list[Figure]
    sections: list[Section]

    @classmethod
    def parse(cls, text: str) -> Readme:
        """Cut Markdown into these parts; the generated claims table is left out."""
        opening, figures = Section(""), []
        sections, claims = [opening], None
        followed = False  # whether the next paragraph belongs to the figure before it
        tree = SyntaxTreeNode(MARKDOWN.parse(CLAIMS.sub(f"\n{PLACE_OF_CLAIMS}\n", text)))
        for block in tree.children:
            pictures = _pictures(block)
            if block.tag == "h1":
                continue
            if block.tag == "h2":
                sections.append(Section(block.children[0].content))
            elif block.type == "paragraph" and block.children[0].content == PLACE_OF_CLAIMS:
                claims = sections[-1]
            elif pictures:
                figures += pictures
            elif followed and block.type == "paragraph":
                figures[-1].blocks.append(block)
                continue
            else:
                sections[-1].blocks.append(block)
            followed = bool(pictures)
        words = next((i for i, b in enumerate(opening.blocks) if b.type != "paragraph"), len(opening.blocks))
        rest = [s for s in sections[1:] if s is not claims and s.blocks]
        note = claims.html if claims and claims is not opening else Markup()
        return cls(_html(opening.blocks[:words]), _html(opening.blocks[words:]), note, figures, rest)


def _pictures(block: SyntaxTreeNode) -> list[Figure]:
    """The pictures of a paragraph that holds nothing else."""
    parts = block.children[0].children if block.type == "paragraph" and block.children else []
    shown = [p for p in parts if p.type not in ("softbreak", "hardbreak")]
    found = [re.fullmatch(r"figures/([\w-]+\.png)", str(p.attrs.get("src", ""))) for p in shown]
    if not all(found):
        return []
    return [Figure(m.group(1), p.content) for p, m in zip(shown, found, strict=True) if m]


def _html(blocks: Sequence[SyntaxTreeNode]) -> Markup:
    tokens = [token for block in blocks for token in block.to_tokens()]
    return Markup(MARKDOWN.renderer.render(tokens, MARKDOWN.options, {}))
