/** The lease under which the code that asks is run, where the runtime follows asynchronous calls. */
import type { AsyncLocalStorage } from "node:async_hooks";
import { SemelError } from "./errors.js";
import type { Lease } from "./lease.js";

interface Runtime {
  process?: { getBuiltinModule?: (name: string) => { AsyncLocalStorage?: typeof AsyncLocalStorage } | undefined };
}

/** Asked for at run time: an import would keep this package out of browsers. */
function made(): AsyncLocalStorage<Lease | undefined> | undefined {
  const found = (globalThis as Runtime).process?.getBuiltinModule?.("node:async_hooks")?.AsyncLocalStorage;
  return found && new found<Lease | undefined>();
}

const storage = made();

/** Runs `work` so that it, and all that it calls, finds the lease by `currentLease()`. */
export const under = <T>(lease: Lease | undefined, work: () => T): T => (storage ? storage.run(lease, work) : work());

const LEASES = new WeakMap<object, Lease>();

/** The lease under which a request runs; nothing where it has no key, or its scope isn't enforced. */
export const leaseOf = (request: object): Lease | undefined => LEASES.get(request);

/** Makes a request's lease known. */
export const attach = (request: object, lease: Lease): unknown => LEASES.set(request, lease);

/**
 * The lease of the wrapped function or handler that is running; nothing outside of one, or where the server doesn't
 * enforce the scope. Throws where the runtime has no `AsyncLocalStorage`, as browsers: `semel.run` gives the lease there.
 */
export function currentLease(): Lease | undefined {
  if (!storage) throw new SemelError("this runtime has no AsyncLocalStorage: take the lease that semel.run gives its function");
  return storage.getStore();
}
