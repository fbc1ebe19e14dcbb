"""Every registered method keeps the contract."""

import pytest

from segue.core import plugins
from segue.testing import check_method


@pytest.mark.parametrize("name", plugins.names("method"))
def test_contract(name: str) -> None:
    check_method(name)
