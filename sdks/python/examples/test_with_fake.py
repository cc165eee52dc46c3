"""Testing your own code: a server in memory, no network, and replies that get lost."""

from semel import Lease, Semel
from semel.testing import FakeSemel


def welcome(semel: Semel, user: str, sent: list[str]) -> int:
    def mail(_lease: Lease | None) -> int:
        sent.append(user)
        return len(sent)

    return semel.run("welcome mail", user, mail).value


def test_a_lost_reply_sends_no_second_mail() -> None:
    fake, sent = FakeSemel(), list[str]()
    fake.lose_replies(2)
    assert welcome(fake.semel(), "ada", sent) == 1
    assert welcome(fake.semel(), "ada", sent) == 1
    assert sent == ["ada"]
    assert fake.state("welcome mail", "ada") == "completed"


def test_after_a_day_the_key_is_new() -> None:
    fake, sent = FakeSemel(), list[str]()
    welcome(fake.semel(), "ada", sent)
    fake.advance(24 * 3600 + 1)
    welcome(fake.semel(), "ada", sent)
    assert sent == ["ada", "ada"]
