"""A file of rules for graphs, as ``txlog configuration set --graphs`` takes it.

A module of its own: masters read no YAML, and do not load its library.
"""

from __future__ import annotations

from pathlib import Path

from pydantic import TypeAdapter, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from txlog.config.durability_specs import GraphRuleSpec, to_rule_spec
from txlog.model.errors import BadInput


def read_graph_rules(file: Path) -> list[dict[str, str]]:
    """The rules in a file of YAML or JSON, which is a list as in ``spec.durability.graphs``, as the API takes them.
    :class:`BadInput` names what is wrong with the file."""
    try:
        found = YAML(typ="safe").load(file.read_text("utf-8"))
        if found is None:  # a file that was lost on its way must not remove what protects the graphs
            raise BadInput(f"{file}: it holds nothing; a list without rules is []")
        rules = TypeAdapter(list[GraphRuleSpec]).validate_python(found)
    except ValidationError as wrong:
        first = wrong.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise BadInput(f"{file}: {place + ': ' if place else ''}{first['msg']}; expected [{{match: …}}, …]") from None
    except (OSError, ValueError, YAMLError) as wrong:
        raise BadInput(f"{file}: {wrong}") from None
    return [to_rule_spec(rule.parse()) for rule in rules]
