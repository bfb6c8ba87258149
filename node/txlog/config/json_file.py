"""A JSON file that one process writes for another one as its configuration."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ValidationError

from txlog.model.errors import BadInput

M = TypeVar("M", bound=BaseModel)


def read_json_file(path: Path, kind: type[M]) -> M:
    """The content as this model. :class:`BadInput` names the file, and the field that is wrong."""
    try:
        return kind.model_validate_json(path.read_bytes())
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}") from error
    except ValidationError as error:
        first = error.errors()[0]
        raise BadInput(f"{path}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from error
