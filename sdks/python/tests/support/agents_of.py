"""One call of a tool by each agent framework, as its own runner makes it."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

from agents import RunConfig, function_tool
from agents.tool_context import ToolContext
from langchain_core.tools import tool
from pydantic_ai import Agent, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

import semel.crewai
import semel.langgraph
import semel.openai_agents
import semel.pydantic_ai
from support import crew

Function = Callable[..., Any]
CALL = "ticket"


class Framework:
    """How functions become tools, and tools are called."""

    name = ""

    def idempotent(self, once: Any, **options: Any) -> Callable[[Function], Function]:
        raise NotImplementedError

    async def call(self, function: Function, conversation: str, **arguments: Any) -> Any:
        raise NotImplementedError

    def schema(self, function: Function) -> dict[str, Any]:
        """What the model is told of the arguments."""
        raise NotImplementedError


class LangGraph(Framework):
    name = "langgraph"

    def idempotent(self, once: Any, **options: Any) -> Callable[[Function], Function]:
        return semel.langgraph.idempotent(once, **options)

    async def call(self, function: Function, conversation: str, **arguments: Any) -> Any:
        config: Any = {"configurable": {"thread_id": conversation}} if conversation else {}
        return await tool(function).ainvoke(arguments, config)

    def schema(self, function: Function) -> dict[str, Any]:
        model: Any = tool(function).tool_call_schema
        return dict(model.model_json_schema()["properties"])


class OpenAiAgents(Framework):
    name = "openai_agents"

    def idempotent(self, once: Any, **options: Any) -> Callable[[Function], Function]:
        return semel.openai_agents.idempotent(once, **options)

    async def call(self, function: Function, conversation: str, **arguments: Any) -> Any:
        made = function_tool(function, failure_error_function=None)
        given, config = json.dumps(arguments), RunConfig(group_id=conversation or None)
        context = ToolContext(None, None, made.name, "c", given, run_config=config)
        return await made.on_invoke_tool(context, given)

    def schema(self, function: Function) -> dict[str, Any]:
        return dict(function_tool(function).params_json_schema["properties"])


class PydanticAi(Framework):
    name = "pydantic_ai"

    def idempotent(self, once: Any, **options: Any) -> Callable[[Function], Function]:
        return semel.pydantic_ai.idempotent(once, **{"conversation": lambda context: context.deps, **options})

    async def call(self, function: Function, conversation: str, **arguments: Any) -> Any:
        def script(messages: list[Any], _: AgentInfo) -> ModelResponse:
            first = len(messages) == 1
            return ModelResponse([ToolCallPart(function.__name__, arguments) if first else TextPart("Done.")])

        ended = await Agent(FunctionModel(script), tools=[function]).run("go", deps=conversation)
        parts = [part for message in ended.all_messages() for part in message.parts]
        return next(part.content for part in parts if isinstance(part, ToolReturnPart))

    def schema(self, function: Function) -> dict[str, Any]:
        seen: list[dict[str, Any]] = []

        def script(_: list[Any], info: AgentInfo) -> ModelResponse:
            seen.append(info.function_tools[0].parameters_json_schema["properties"])
            return ModelResponse([TextPart("Done.")])

        Agent(FunctionModel(script), tools=[function]).run_sync("go")
        return seen[0]


class CrewAi(Framework):
    name = "crewai"

    def __init__(self) -> None:
        self.conversation = ""

    def idempotent(self, once: Any, **options: Any) -> Callable[[Function], Function]:
        return semel.crewai.idempotent(once, **{"conversation": lambda: self.conversation, **options})

    async def call(self, function: Function, conversation: str, **arguments: Any) -> Any:
        self.conversation = conversation
        result = crew.tool("tool")(function).run(**arguments)
        return await result if isinstance(result, Awaitable) else result

    def schema(self, function: Function) -> dict[str, Any]:
        return dict(crew.tool("tool")(function).args_schema.model_json_schema()["properties"])


ALL: list[Framework] = [LangGraph(), OpenAiAgents(), PydanticAi(), CrewAi()]
