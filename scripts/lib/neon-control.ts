import type { Fault, Journal } from "./neon-journal.ts";
import { BadRequest } from "./neon-request.ts";
import type { Answer } from "./neon-run.ts";

/**
 * The journal over HTTP, for tests that run inside workerd and can't share memory with the server:
 *
 * - `GET /control/statements?database=x` → `{ statements, requests, texts }`
 * - `POST /control/reset?database=x`: forgets them, and the faults
 * - `POST /control/fault?database=x` `{ kind, times?, hangMs?, status? }`, kind being `cut-before`, `cut-after`, `truncate`, `hang`
 *   or `status`: the next `times` requests go wrong (1)
 *
 * @throws BadRequest
 */
export function control(journal: Journal, method: string, url: URL, body: Buffer): Answer {
  const database = url.searchParams.get("database");
  if (database === null) throw new BadRequest("which database? ?database=name");
  switch (`${method} ${url.pathname}`) {
    case "GET /control/statements": {
      const texts = journal.log.filter((entry) => entry.database === database).map((entry) => entry.text);
      const counts = { statements: journal.statements(database), requests: journal.requests(database) };
      return { status: 200, body: { ...counts, texts } };
    }
    case "POST /control/reset":
      journal.resetStatements(database);
      journal.fault(database);
      return { status: 200, body: {} };
    case "POST /control/fault": {
      const { kind, times = 1, hangMs = 0, status = 500 } = JSON.parse(body.toString("utf8"));
      const fault = toFault(kind, hangMs, status);
      let left = Number(times);
      journal.fault(database, () => (left-- > 0 ? fault : undefined));
      return { status: 200, body: {} };
    }
    default:
      return { status: 404, body: { message: "not found" } };
  }
}

function toFault(kind: unknown, hangMs: unknown, status: unknown): Fault {
  switch (kind) {
    case "cut-before":
    case "cut-after":
    case "truncate":
      return kind;
    case "hang":
      return { hangMs: Number(hangMs) };
    case "status":
      return { status: Number(status) };
    default:
      throw new BadRequest("no such kind of fault");
  }
}
