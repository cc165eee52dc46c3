// The admin API. The token is kept for this tab alone (sessionStorage), and sent to this origin alone.

const KEY = "semel.token";
let token = sessionStorage.getItem(KEY);

/** What the API answered instead of doing it, or that there was no answer. */
export class ApiError extends Error {
  constructor(status, document) {
    super(document.detail ?? "the answer makes no sense");
    this.status = status;
    this.code = document.code;
    this.title = document.title;
    this.next = next(status, document.code);
  }
}

/** What to do next, by the kind of problem. */
function next(status, code) {
  if (code === "moved_on") return "Somebody or something was faster. Look at the record again, and decide anew.";
  if (code === "audit_unavailable") return "Changes wait until the audit trail can be written: look at audit.file and the disk behind it.";
  if (status === 0) return "Check that the process runs and that this address still leads to it. The page goes on asking.";
  if (status === 503) return "The store gives no answer. See what the banner says, and try again when it is back.";
  if (status === 404) return "It may have expired, or it belongs to another scope, tenant or environment.";
  if (status === 429) return "Close another live view, or wait a moment.";
  return null;
}

export const signedIn = () => token !== null;

export function signIn(given) {
  token = given;
  sessionStorage.setItem(KEY, given);
}

export function signOut() {
  token = null;
  sessionStorage.removeItem(KEY);
}

/** What this server asks for: `token`, `certificate` or `nothing`. */
export async function asksFor() {
  const response = await fetch("ui/access.json", { cache: "no-store" });
  return (await response.json()).asks_for;
}

async function call(method, path, body) {
  const headers = {};
  if (token) headers.Authorization = `Bearer ${token}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let response;
  try {
    response = await fetch(`admin/v1/${path}`, {
      method, headers, cache: "no-store", credentials: "same-origin", redirect: "error",
      body: body === undefined ? undefined : JSON.stringify(body),
      signal: AbortSignal.timeout(15_000),
    });
  } catch {
    throw new ApiError(0, { title: "No connection", detail: "Semel’s admin API gives no answer." });
  }
  const document = await response.json().catch(() => ({}));
  if (response.status === 401) dispatchEvent(new CustomEvent("semel:refused"));
  if (!response.ok) throw new ApiError(response.status, document);
  return document;
}

export const get = (path) => call("GET", path);
export const post = (path, body) => call("POST", path, body);
