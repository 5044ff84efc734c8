"""The table of error codes is complete and agrees with the package."""

from __future__ import annotations

from collections import Counter

from aiokafkawire.wire import APIS, ErrorCode, error_for

from .codes import CODES
from .table import LISTED, ROWS, Reaction

PAGE = range(-1, 33)
"""Codes of the protocol page, which has all codes of the guides."""


def test_codes_of_the_documents_are_complete_and_sorted() -> None:
    codes = [row.code for row in CODES]
    assert codes == sorted(set(codes))
    assert [row.code.value for row in CODES if row.page] == list(PAGE)
    assert {row.code.value for row in CODES if row.guide} == {*PAGE} - {13, 32}
    assert {row.code.value for row in CODES if row.old} == {*range(-1, 13), 14, 15, 16}


def test_the_current_name_is_first_and_each_name_is_unique() -> None:
    assert all(row.names[0] == row.code.name for row in CODES)
    # "Unused" is no name; what 0.8 called so is ReplicaNotAvailable.
    names = Counter(name for row in CODES for name in row.names)
    assert set(names.values()) == {1}


def test_only_replica_not_available_differs_in_retriable() -> None:
    documented = [row for row in CODES if row.page]
    assert [row.code for row in documented if row.differs] == [ErrorCode.REPLICA_NOT_AVAILABLE]


def test_every_listed_error_has_a_row() -> None:
    listed = {(row.api, row.code) for row in ROWS if row.listed}
    assert listed == {(api, code) for api, codes in LISTED.items() for code in codes}


def test_every_code_has_a_row_and_every_row_a_code() -> None:
    assert {row.code for row in ROWS} == {row.code for row in CODES}


def test_each_code_of_an_api_has_one_reaction() -> None:
    counted = Counter((row.api, row.code) for row in ROWS)
    assert set(counted.values()) == {1}


def test_every_reaction_is_used() -> None:
    assert {row.reaction for row in ROWS} == set(Reaction)


def test_the_apis_have_names() -> None:
    assert all(api in APIS for api in LISTED)


def test_errors_explain_more_than_the_name_of_the_code() -> None:
    # ConnectionLost replaces the first, and the second is handled internally.
    never = {ErrorCode.NETWORK_EXCEPTION, ErrorCode.MEMBER_ID_REQUIRED}
    for row in CODES:
        if row.code and row.code not in never:
            assert error_for(row.code).reason != row.code.name, row.code.name
