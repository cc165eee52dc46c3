/** What tells callers apart where nobody says who they are. `spec/vectors/credentials.json` holds all languages to it. */

export const NAMES = (
  "authorization x-api-key proxy-authorization api-key apikey x-apikey x-auth-token x-access-token x-session-token private-token " +
  "job-token ocp-apim-subscription-key x-functions-key x-goog-api-key x-goog-iap-jwt-assertion x-amz-security-token " +
  "x-amzn-oidc-data x-amzn-oidc-accesstoken x-amzn-oidc-identity x-ms-client-principal cf-access-jwt-assertion cf-access-client-id " +
  "cf-access-client-secret x-auth-request-user x-auth-request-email x-auth-request-access-token x-forwarded-user " +
  "x-forwarded-email x-forwarded-preferred-username x-forwarded-access-token x-remote-user remote-user client-cert " +
  "x-forwarded-client-cert x-client-cert x-ssl-client-cert"
).split(" ");

/** So many of them count also where they are absent. */
export const ALWAYS = 2;

/** The name under which a certificate counts. No header has it. */
const CERTIFICATE = ":client-certificate";

const SIGN_IN = new Set(
  (
    "login log-in log_in logon signin sign-in sign_in auth authorize authenticate oauth oauth2 oidc openid-connect sso saml saml2"
  ).split(" "),
);

/** What counts as credentials: headers besides the usual ones; of the cookies those that are named, else all of them. */
export interface Credentials {
  headers?: string[];
  cookies?: string[];
}

export type Counted = [name: string, values: string[]][];

/** What counts of a request, in an order that is not the request's. */
export function counted(credentials: Credentials, header: (name: string) => string[], certificate?: string): Counted {
  const more = (credentials.headers ?? []).map((name) => name.toLowerCase()).filter((name) => !NAMES.includes(name));
  const found: Counted = [];
  for (const [at, name] of [...NAMES, ...more].entries()) {
    const values = header(name);
    if (at < ALWAYS || values.length > 0) found.push([name, values]);
  }
  const cookies = ofCookies(credentials.cookies ?? [], header("cookie").filter((line) => line !== ""));
  if (cookies.length > 0) found.push(["cookie", cookies]);
  if (certificate) found.push([CERTIFICATE, [certificate]]);
  return found;
}

function ofCookies(names: string[], lines: string[]): string[] {
  if (lines.length === 0) return [];
  if (names.length === 0) return [lines.join("; ")];
  const pairs = lines.flatMap((line) => line.split(";")).map((pair) => pair.trim());
  return names.flatMap((name) => pairs.filter((pair) => pair.startsWith(`${name}=`)));
}

/** Whether any of these is there. */
export const hasCredentials = (found: Counted): boolean => found.some(([, values]) => values.length > 0);

/** Whether an answer to a request without credentials says that they are missing. A 303 says that something was done. */
export function asksToSignIn(status: number, location: string | undefined): boolean {
  if ([401, 403, 407].includes(status)) return true;
  if (![301, 302, 307, 308].includes(status) || location === undefined) return false;
  const segments = (location.split(/[?#]/)[0] ?? "").split("/");
  return segments.some((segment) => SIGN_IN.has((segment.split(/[.;]/)[0] ?? "").toLowerCase()));
}
