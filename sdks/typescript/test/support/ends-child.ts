/** Programs that end, by the name of how: each says `ran` first, and ends by itself or by what it does. */
import { open } from "../../src/open.js";

const [how = "", url = "memory://", environment = ""] = process.argv.slice(2);
const once = await open(url, { environment });
const { value } = await once.run({ scope: "ends", key: `k-${how}` }, () => "ran");
console.log(value);
const never = new Promise<void>(() => undefined);

if (how === "closed") await once.close();
if (how === "exit-in-calls") {
  for (let number = 0; number < 4; number++) void once.run({ scope: "ends", key: "slow", waitMs: 20_000 }, () => never);
  setTimeout(() => process.exit(0), 200);
}
if (how === "waits") {
  // A call that is under way keeps the process: the second waits for the first, and gets its answer.
  const slow = { scope: "ends", key: "slow", waitMs: 20_000 };
  let end: () => void = () => undefined;
  const until = new Promise<void>((resolve) => (end = resolve));
  void once.run(slow, () => until);
  void once.run({ scope: "ends", key: "look" }, () => 1).then(() => setTimeout(end, 100));
  void once.run(slow, () => undefined).then(({ replayed }) => console.log(replayed ? "replayed" : "ran twice"));
}
