"""Tools of agents: a call that a model makes again acts once, and what it can't know it is told in words."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import pytest
from agents import RunContextWrapper
from langchain_core.messages import AIMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import InjectedToolCallId, tool
from langgraph.errors import GraphInterrupt
from langgraph.prebuilt import ToolRuntime
from pydantic_ai import ModelRetry, RunContext

import semel
import semel.crewai
import semel.langgraph
import semel.openai_agents
import semel.pydantic_ai
from semel import EffectFailed, Final, InDoubt, NoEffect, PayloadInvalid, RetryPolicy, Semel, SemelError, Terms
from semel._tool_words import NEW_CALL, Refusal, refusal
from semel._tools import call_key, field_digest
from semel.testing import FakeSemel
from support import agents_of
from support.agents_of import Framework

VECTORS = json.loads((Path(__file__).parents[3] / "spec" / "vectors" / "tools.json").read_text())


class Mails:
    """A tool that counts."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.error: Exception | None = None

    def tool(self) -> Callable[..., str]:
        def send_email(to: str, subject: str, note: str = "", cc: str = "") -> str:
            """Sends a mail."""
            self.sent.append(note)
            if self.error is not None:
                raise self.error
            return f"mail {len(self.sent)} to {to}"

        return send_email

    def atool(self) -> Callable[..., Any]:
        send = self.tool()

        async def send_email(to: str, subject: str, note: str = "") -> str:
            """Sends a mail."""
            return send(to, subject, note)

        return send_email


@pytest.fixture
def fake() -> FakeSemel:
    """A server in memory."""
    return FakeSemel()


@pytest.fixture
def mails() -> Mails:
    """What is done."""
    return Mails()


each = pytest.mark.parametrize("framework", agents_of.ALL, ids=lambda framework: framework.name)
IDENTITY = ("to", "subject")
ADA = {"to": "ada", "subject": "Invoice 7"}


@each
async def test_a_repeated_call_gets_the_first_result(framework: Framework, fake: FakeSemel, mails: Mails) -> None:
    send = framework.idempotent(fake.semel(), identity=IDENTITY)(mails.tool())
    for _ in range(3):
        assert await framework.call(send, "t-1", **ADA, note="n") == "mail 1 to ada"
    assert await framework.call(send, "t-2", **ADA, note="n") == "mail 2 to ada", "another conversation"
    assert await framework.call(send, "t-1", to="bob", subject="Invoice 7") == "mail 3 to bob"


@each
async def test_a_coroutine_function_too(framework: Framework, fake: FakeSemel, mails: Mails) -> None:
    send = framework.idempotent(fake.async_semel(), identity=IDENTITY)(mails.atool())
    for _ in range(2):
        assert await framework.call(send, "t-1", **ADA, note="n") == "mail 1 to ada"
    assert "differs in note." in await framework.call(send, "t-1", **ADA, note="N")
    mails.error = RuntimeError("no reply")
    with pytest.raises(RuntimeError):
        await framework.call(send, "t-2", **ADA)
    assert (await framework.call(send, "t-2", **ADA)).startswith("It is not known whether")
    assert len(mails.sent) == 2


@each
async def test_a_reworded_call_is_refused_in_words(framework: Framework, fake: FakeSemel, mails: Mails) -> None:
    send = framework.idempotent(fake.semel(), ignore=("note", "cc"))(mails.tool())
    await framework.call(send, "t-1", **ADA, note="a")
    told = await framework.call(send, "t-1", **ADA, note="b")
    assert told == refusal("reworded", "send_email", ["note"], new_call="new_call")
    told = await framework.call(send, "t-1", **ADA, note="b", cc="eve")
    assert "differs in note, cc." in told
    for words, result in (("two", "mail 2 to ada"), ("two", "mail 2 to ada"), ("three", "mail 3 to ada")):
        assert await framework.call(send, "t-1", **ADA, note="b", new_call=words) == result


@each
async def test_true_says_a_new_call_as_it_does_to_the_gateway(
    framework: Framework, fake: FakeSemel, mails: Mails
) -> None:
    send = framework.idempotent(fake.semel(), identity=IDENTITY)(mails.tool())
    for note, new_call, result in (
        ("a", None, "mail 1 to ada"),
        ("b", True, "mail 2 to ada"),
        ("b", "true", "mail 2 to ada"),
        ("a", True, "mail 3 to ada"),
        ("a", False, "mail 1 to ada"),
        ("a", "false", "mail 1 to ada"),
    ):
        assert await framework.call(send, "t-1", **ADA, note=note, new_call=new_call) == result
    arguments = {**ADA, "note": "b", "cc": ""}
    assert fake.state("send_email", call_key("send_email", "t-1", arguments, "true")) == "completed"


@each
async def test_another_kind_of_new_call_is_refused_in_words(
    framework: Framework, fake: FakeSemel, mails: Mails
) -> None:
    send = framework.idempotent(fake.semel(), identity=IDENTITY)(mails.tool())
    for given in (7, ["x"], {"text": "x"}):
        told = await framework.call(send, "t-1", **ADA, new_call=given)
        assert told == refusal("malformed", "send_email", new_call="new_call")
    assert (mails.sent, fake.calls) == ([], [])


@each
async def test_without_a_conversation_nothing_is_done(framework: Framework, fake: FakeSemel, mails: Mails) -> None:
    send = framework.idempotent(fake.semel())(mails.tool())
    with pytest.raises(SemelError, match="no conversation"):
        await framework.call(send, "", **ADA)
    assert (mails.sent, fake.calls) == ([], [])


async def test_the_id_that_pydantic_ai_makes_for_a_run_is_no_conversation(fake: FakeSemel) -> None:
    with pytest.raises(TypeError, match="conversation"):
        semel.pydantic_ai.idempotent(fake.semel())  # type: ignore[call-arg]
    made: list[str | None] = []

    def look(context: RunContext[str]) -> str:
        """Looks."""
        made.append(context.conversation_id)
        return ""

    for _ in range(2):
        await agents_of.PydanticAi().call(look, "t-1")
    assert made[0] != made[1], "a run that is started again has another one"


@each
async def test_what_is_in_doubt_is_told_as_such(framework: Framework, fake: FakeSemel, mails: Mails) -> None:
    send = framework.idempotent(fake.semel(), identity=IDENTITY)(mails.tool())
    mails.error = RuntimeError("no reply")
    with pytest.raises(RuntimeError):
        await framework.call(send, "t-1", **ADA)
    told = await framework.call(send, "t-1", **ADA)
    assert told == refusal("in_doubt", "send_email", new_call="new_call")
    told = await framework.call(send, "t-1", **ADA, note="b")
    assert "differs in at least one of note, cc." in told, "no earlier call has told what it had"
    assert len(mails.sent) == 1


@each
def test_the_model_is_told_of_the_argument_for_a_new_call(framework: Framework, fake: FakeSemel, mails: Mails) -> None:
    properties = framework.schema(framework.idempotent(fake.semel())(mails.tool()))
    assert set(properties) == {"to", "subject", "note", "cc", "new_call"}
    assert properties["new_call"]["description"] == NEW_CALL == VECTORS["new_call"]


def crew_tool(once: Semel, mails: Mails, **options: Any) -> Callable[..., Any]:
    return semel.crewai.idempotent(once, conversation=lambda: "t-1", identity=IDENTITY, **options)(mails.tool())


def test_a_call_that_still_runs_is_told_as_such(fake: FakeSemel, mails: Mails) -> None:
    once = fake.semel(retry=RetryPolicy(base=0.001, cap=0.01, total_timeout=0.05))
    key = call_key("send_email", "t-1", ADA, "")
    with once.operation("send_email", key, payload={"note": "", "cc": ""}):
        told = crew_tool(once, mails)(**ADA)
    assert told == refusal("running", "send_email", new_call="new_call")
    assert mails.sent == []


def test_a_result_that_was_not_kept_is_told_as_such(fake: FakeSemel) -> None:
    once = fake.semel()

    @semel.crewai.idempotent(once, conversation=lambda: "t-1", decode=str)
    def export(page: int) -> object:
        """Exports."""
        return object() if page == 1 else "x" * 2_000_000

    assert type(export(page=1)) is object
    assert export(page=2) == "x" * 2_000_000
    for page in (1, 2):
        assert export(page=page) == refusal("not_kept", "export", new_call="new_call")


def test_a_program_may_say_it_in_its_own_way(fake: FakeSemel, mails: Mails) -> None:
    told: list[Refusal] = []

    def tell(words: Refusal) -> str:
        told.append(words)
        return "no"

    send = crew_tool(fake.semel(), mails, tell=tell)
    send(**ADA)
    assert send(**ADA, cc="eve") == "no"
    assert [(words.reason, words.fields) for words in told] == [("reworded", ("cc",))]


def test_errors_of_the_tool_itself_are_its_own(fake: FakeSemel, mails: Mails) -> None:
    send = crew_tool(fake.semel(), mails)
    mails.error = InDoubt(409, {"code": "idempotency_in_doubt"})
    with pytest.raises(InDoubt):
        send(**ADA)
    mails.error = NoEffect()
    for _ in range(2):
        with pytest.raises(NoEffect):
            send(to="bob", subject="s")
    mails.error = Final({"because": "blocked"})
    for _ in range(2):
        with pytest.raises(EffectFailed):
            send(to="eve", subject="s")
    assert len(mails.sent) == 4


def test_what_says_that_nothing_happened_frees_the_key(fake: FakeSemel, mails: Mails) -> None:
    @semel.langgraph.idempotent(fake.semel(), conversation=lambda _: "t-1")
    def ask(question: str) -> str:
        """Asks a person."""
        raise GraphInterrupt

    @semel.pydantic_ai.idempotent(fake.semel(), conversation=lambda _: "t-1")
    def book(day: str) -> str:
        """Books a room."""
        raise ModelRetry("no such day")

    for function, arguments in ((ask, {"question": "?"}), (book, {"day": "x"})):
        context = (None,) if function is book else ()
        with pytest.raises((GraphInterrupt, ModelRetry)):
            function(*context, **arguments)
        key = call_key(function.__name__, "t-1", arguments, "")
        assert fake.state(function.__name__, key) == "released"


async def test_what_the_framework_gives_is_no_argument(fake: FakeSemel) -> None:
    seen: list[object] = []

    @tool
    @semel.langgraph.idempotent(fake.semel())
    def look(to: str, config: RunnableConfig, call_id: Annotated[str, InjectedToolCallId]) -> str:
        """Looks."""
        seen.append(config["configurable"]["thread_id"])
        return to

    call = {"name": "look", "args": {"to": "ada"}, "type": "tool_call"}
    for number in ("1", "2"):
        told = await look.ainvoke({**call, "id": number}, {"configurable": {"thread_id": "t"}})
        assert told.content == "ada"
    assert seen == ["t"]

    @semel.openai_agents.idempotent(fake.semel(), conversation=lambda context: context.context["ticket"])
    def write(context: RunContextWrapper[dict[str, str]], to: str) -> str:
        """Writes."""
        return to

    @semel.pydantic_ai.idempotent(fake.semel(), conversation=lambda context: context.deps)
    def call_up(context: RunContext[str], to: str) -> str:
        """Calls."""
        seen.append(context.deps)
        return to

    for _ in range(2):
        assert write(RunContextWrapper({"ticket": "t"}), to="ada") == "ada"
        assert await agents_of.PydanticAi().call(call_up, "t-9", to="ada") == "ada"
    assert seen == ["t", "t-9"]


def test_an_argument_of_the_tools_own_by_that_name_is_passed_on(fake: FakeSemel) -> None:
    seen: list[str | None] = []

    @semel.crewai.idempotent(fake.semel(), conversation=lambda: "t")
    def note(text: str, new_call: str | None = None, **more: str) -> str:
        """Notes."""
        seen.append(new_call)
        return text

    for words in (None, None, "again"):
        note("x", new_call=words, color="red")
    assert seen == [None, "again"]


def test_a_call_by_the_program_itself_is_checked_too(fake: FakeSemel, mails: Mails) -> None:
    send = crew_tool(fake.semel(), mails)
    assert [send(**ADA), send(**ADA, new_call=True), send(**ADA, new_call=True)] == [
        "mail 1 to ada",
        "mail 2 to ada",
        "mail 2 to ada",
    ]
    assert send(**ADA, new_call=7) == refusal("malformed", "send_email", new_call="new_call")


def test_a_method_is_a_tool_as_well(fake: FakeSemel) -> None:
    class Mailer:
        def __init__(self) -> None:
            self.sent = 0

        @semel.crewai.idempotent(fake.semel(), "mailer", conversation=lambda: "t", identity=("to",))
        def _run(self, to: str, note: str = "") -> str:
            """Sends a mail."""
            self.sent += 1
            return f"mail {self.sent} to {to}"

    mailer = Mailer()
    assert [mailer._run("ada"), mailer._run(to="ada")] == ["mail 1 to ada"] * 2
    told = mailer._run("ada", note="n")
    assert told == refusal("reworded", "mailer", ["note"], new_call="new_call")
    assert type(told) is str, "nothing that a checkpointer would not know"


def test_the_arguments_names_are_checked(fake: FakeSemel, mails: Mails) -> None:
    once, many = fake.semel(), fake.async_semel()
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"identity": ("to",), "ignore": ("note",)}, "not both"),
        ({"identity": ("whom",)}, "'whom' is no argument"),
        ({"ignore": ("whom",)}, "'whom' is no argument"),
        ({"identity": "to"}, "as a tuple"),
        ({"identity": ()}, "the same key"),
        ({"ignore": ("to", "subject", "note", "cc")}, "the same key"),
    ]
    for options, message in wrong:
        with pytest.raises(TypeError, match=message):
            semel.crewai.idempotent(once, conversation=str, **options)(mails.tool())
    with pytest.raises(TypeError, match="use AsyncSemel"):
        semel.crewai.idempotent(once, conversation=str)(mails.atool())
    with pytest.raises(TypeError, match="use Semel"):
        semel.crewai.idempotent(many, conversation=str)(mails.tool())


def test_an_argument_that_cannot_be_compared_is_refused_first(fake: FakeSemel) -> None:
    runs: list[int] = []

    @semel.crewai.idempotent(fake.semel(), conversation=lambda: "t", ignore=("size",))
    def count(name: str, size: float) -> None:
        """Counts."""
        runs.append(1)

    with pytest.raises(PayloadInvalid):
        count("a", 2.0**60)
    with pytest.raises(ValueError, match="Out of range"):
        count("a", float("nan"))
    assert runs == []


def test_terms_of_a_tool_count_before_those_of_the_client(fake: FakeSemel, mails: Mails) -> None:
    mails.error = RuntimeError("before anything was sent")
    for once, terms in ((fake.semel(terms=Terms(crash="takeover")), None), (fake.semel(), Terms(crash="takeover"))):
        send = crew_tool(once, mails, terms=terms)
        for _ in range(2):
            with pytest.raises(RuntimeError):
                send(**ADA)
    assert len(mails.sent) == 4


def test_where_the_server_only_observes_every_call_acts(mails: Mails) -> None:
    send = crew_tool(FakeSemel(observes=True).semel(), mails)
    assert [send(**ADA), send(**ADA)] == ["mail 1 to ada", "mail 2 to ada"]


def test_the_answer_of_an_operator_is_given_as_it_is(fake: FakeSemel, mails: Mails) -> None:
    once = fake.semel()
    key = call_key("send_email", "t-1", ADA, "")
    with once.operation("send_email", key, payload={"note": "", "cc": ""}) as operation:
        operation.complete("sent by hand")
    assert crew_tool(once, mails)(**ADA) == "sent by hand"
    assert mails.sent == []


@pytest.mark.parametrize("where", ["store", "sidecar"])
def test_on_a_store_in_this_process_and_on_a_sidecar(where: str, request: pytest.FixtureRequest, mails: Mails) -> None:
    url = "memory://" if where == "store" else request.getfixturevalue("api")
    with semel.open(url) as once:
        send = crew_tool(once, mails)
        assert [send(**ADA), send(**ADA)] == ["mail 1 to ada"] * 2
        assert "differs in cc." in send(**ADA, cc="eve")
        assert send(**ADA, cc="eve", new_call="b") == "mail 2 to ada"
        mails.error = RuntimeError("no reply")
        with pytest.raises(RuntimeError):
            send(to="bob", subject="s")
        assert send(to="bob", subject="s").startswith("It is not known whether")


def test_a_message_of_a_tool_node_is_the_words(fake: FakeSemel, mails: Mails) -> None:
    from langgraph.graph import START, MessagesState, StateGraph  # noqa: PLC0415
    from langgraph.prebuilt import ToolNode  # noqa: PLC0415

    send = mails.tool()

    @tool
    @semel.langgraph.idempotent(fake.semel(), identity=IDENTITY)
    def send_email(to: str, subject: str, note: str, runtime: ToolRuntime[None, Any]) -> str:
        """Sends a mail."""
        assert len(runtime.state["messages"]) == 1
        return send(to, subject, note)

    graph = StateGraph(MessagesState)
    graph.add_node("tools", ToolNode([send_email]))
    graph.add_edge(START, "tools")
    calls: list[Any] = [{"name": "send_email", "args": {**ADA, "note": note}, "id": note} for note in ("a", "a ", "a")]
    made = graph.compile()
    said = []
    for call in calls:
        messages: Any = {"messages": [AIMessage("", tool_calls=[call])]}
        said.append(made.invoke(messages, {"configurable": {"thread_id": "t"}})["messages"][-1].content)
    assert said[0] == said[2] == "mail 1 to ada"
    assert "differs in note." in said[1]


@pytest.mark.parametrize("case", VECTORS["cases"], ids=lambda case: str(case["name"]))
def test_keys_are_those_of_other_languages(case: Any) -> None:
    key = call_key(case["tool"], case["conversation"], case["identity"], case["new_call"])
    assert key == case["key"]
    for given in case["fields"]:
        assert field_digest(key, given["value"]) == given["digest"]


@pytest.mark.parametrize("case", VECTORS["words"], ids=lambda case: str(case["reason"]))
def test_words_are_those_of_other_languages(case: Any) -> None:
    made = refusal(case["reason"], case["tool"], case["fields"], known=case["known"], new_call=case["new_call"])
    assert (made, made.reason, made.fields) == (case["text"], case["reason"], tuple(case["fields"]))
