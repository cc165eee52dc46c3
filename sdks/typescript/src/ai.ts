/** AI SDK (`ai`): a tool that a model calls again acts once. */
import { type Tool, type ToolExecutionOptions, asSchema, jsonSchema } from "ai";
import { NEW_CALL, type Refusal } from "./tool-words.js";
import { type ToolCall, runTool } from "./tools.js";
import type { Semel, Terms } from "./worker.js";

export type { Reason, Refusal } from "./tool-words.js";

/** How the calls of a tool are told apart, and treated. */
export interface ToolOptions extends Terms {
  semel: Semel;
  /** The arguments that tell calls apart; unless said, all but those in `ignore`. */
  identity?: string[];
  /** The arguments that don't. */
  ignore?: string[];
  /** The id of the conversation, or what reads it from the options of the call. */
  conversation: string | ((options: ToolExecutionOptions) => string | undefined);
  /** Makes what the tool returns of the words for the model; the words themselves, unless said. */
  tell?: (refusal: Refusal) => unknown;
}

type Members = Record<string, unknown>;
type JsonSchema = Awaited<ReturnType<typeof asSchema>["jsonSchema"]>;

const NEW = "newCall";

/**
 * Makes a tool act once for each call of one meaning in a conversation; a repeated call gets the first result. A call that
 * differs only in other arguments is refused in words for the model, and so is one whose outcome is in doubt. The tool gets
 * an argument more, `newCall`, by which the model makes a new call.
 *
 * `{ sendEmail: idempotentTool("sendEmail", tool({ … }), { semel, identity: ["to", "subject"], conversation: chatId }) }`
 */
export function idempotentTool<INPUT, OUTPUT>(name: string, tool: Tool<INPUT, OUTPUT>, options: ToolOptions): Tool<INPUT, OUTPUT> {
  const { semel, identity, ignore, conversation, tell, ...terms } = options;
  const run = tool.execute as ((input: unknown, called: ToolExecutionOptions) => unknown) | undefined;
  if (!run) throw new TypeError(`${name} has no execute: what is done elsewhere can't be done once here`);
  if (identity && ignore) throw new TypeError("give identity or ignore, not both");
  const schema = asSchema(tool.inputSchema);
  const described = Promise.resolve(schema.jsonSchema);
  // Told by the first call, too.
  described.catch(() => undefined);

  const execute = async (input: unknown, called: ToolExecutionOptions): Promise<unknown> => {
    const names = propertiesOf(await described);
    const own = names.includes(NEW);
    const { [NEW]: newCall, ...rest } = input as Members;
    const given = own ? (input as Members) : rest;
    const call: ToolCall = {
      conversation: typeof conversation === "string" ? conversation : conversation(called),
      input: rest,
      newCall,
      signal: called.abortSignal,
    };
    const counted = identityOf(name, names.filter((each) => each !== NEW), Object.keys(rest), identity, ignore);
    return runTool({ semel, name, terms, identity: counted, tell }, call, () => run(given, called));
  };
  const inputSchema = jsonSchema<INPUT>(() => described.then(extended), {
    validate: async (value) => {
      const checked = async (members: unknown) =>
        schema.validate ? await schema.validate(members) : { success: true as const, value: members as INPUT };
      if (propertiesOf(await described).includes(NEW) || typeof value !== "object" || value === null) return checked(value);
      const { [NEW]: newCall, ...rest } = value as Members;
      const found = await checked(rest);
      // Of another kind, too: what it should be is told by the call.
      return found.success && newCall !== undefined ? { ...found, value: { ...found.value, [NEW]: newCall } } : found;
    },
  });
  return { ...tool, inputSchema, execute } as Tool<INPUT, OUTPUT>;
}

function propertiesOf(schema: JsonSchema): string[] {
  return Object.keys(schema.properties ?? {});
}

/** With the argument that makes a call a new one. */
function extended(schema: JsonSchema): JsonSchema {
  if (schema.properties?.[NEW] !== undefined) return schema;
  return { ...schema, properties: { ...schema.properties, [NEW]: { type: "string", description: NEW_CALL } } };
}

/** The arguments that say what is done. */
function identityOf(name: string, known: string[], given: string[], identity?: string[], ignore?: string[]): string[] {
  // A misspelt name would let every call have the same key.
  const unknown = [...(identity ?? []), ...(ignore ?? [])].filter((each) => !known.includes(each));
  if (unknown[0] !== undefined) throw new TypeError(`${name} has no argument ${unknown[0]}`);
  const all = [...new Set([...known, ...given])];
  const counted = identity ?? all.filter((each) => !ignore?.includes(each));
  if (all.length > 0 && counted.length === 0) {
    throw new TypeError(`every call of ${name} would have the same key: name an argument that tells calls apart`);
  }
  return counted;
}
