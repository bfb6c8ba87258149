"""Sphinx: how ``make docs`` builds ``docs/`` into a site. ``toc.yml`` beside it is the navigation.

A link from a page to a source file of the repository becomes a download. A link to a Markdown file outside ``docs/``
fails, since that file is no page of the site: write its path as code instead.
"""

project = "TxLog"
extensions = ["myst_parser", "sphinx_external_toc", "sphinxcontrib.mermaid"]
external_toc_path = "../tools/docs_site/toc.yml"
html_theme = "furo"
html_title = "TxLog"
html_show_sphinx = False
html_show_copyright = False
myst_heading_anchors = 6
myst_fence_as_directive = ["mermaid"]
