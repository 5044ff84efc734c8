"""The table is whole, and agrees with what the package knows of codes."""

from __future__ import annotations

from collections import Counter

from aiokafkawire.wire import APIS, ErrorCode, error_for

from .codes import CODES
from .table import LISTED, ROWS, Does

PAGE = range(-1, 33)
"""The codes of the protocol page; the guides have none that it does not have."""


def test_every_code_of_the_documents_is_there_once_and_in_order() -> None:
    codes = [row.code for row in CODES]
    assert codes == sorted(set(codes))
    assert [row.code.value for row in CODES if row.page] == list(PAGE)
    assert {row.code.value for row in CODES if row.guide} == {*PAGE} - {13, 32}
    assert {row.code.value for row in CODES if row.old} == {*range(-1, 13), 14, 15, 16}


def test_names_are_those_of_today_first_and_none_means_two_codes() -> None:
    assert all(row.names[0] == row.code.name for row in CODES)
    # "Unused" is no name; what 0.8 called so is ReplicaNotAvailable.
    names = Counter(name for row in CODES for name in row.names)
    assert set(names.values()) == {1}


def test_what_was_retriable_is_so_today_but_for_one() -> None:
    documented = [row for row in CODES if row.page]
    assert [row.code for row in documented if row.differs] == [ErrorCode.REPLICA_NOT_AVAILABLE]


def test_every_error_that_the_documents_list_has_its_row() -> None:
    told = {(row.api, row.code) for row in ROWS if row.listed}
    assert told == {(api, code) for api, codes in LISTED.items() for code in codes}


def test_every_code_has_a_row_and_every_row_a_code() -> None:
    assert {row.code for row in ROWS} == {row.code for row in CODES}


def test_no_code_of_an_api_does_two_things() -> None:
    counted = Counter((row.api, row.code) for row in ROWS)
    assert set(counted.values()) == {1}


def test_everything_that_the_client_can_do_is_done_about_some_code() -> None:
    assert {row.does for row in ROWS} == set(Does)


def test_the_apis_have_names() -> None:
    assert all(api in APIS for api in LISTED)


def test_what_may_be_raised_says_more_than_its_name() -> None:
    # The connection's own errors stand for the first, and nobody is told of the second.
    never = {ErrorCode.NETWORK_EXCEPTION, ErrorCode.MEMBER_ID_REQUIRED}
    for row in CODES:
        if row.code and row.code not in never:
            assert error_for(row.code).reason != row.code.name, row.code.name
