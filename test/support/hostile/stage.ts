import type pg from "pg";
import { createClient } from "../../../src/client.ts";
import type { Database } from "../../../src/shared/db/port.ts";
import { type CallbackId, newCallbackId } from "../../../src/shared/ids.ts";
import {
  carrierParcels,
  githubDeployments,
  replicatePredictions,
  stripePayments,
} from "../../../src/sources.ts";
import { makeRunning, makeWaiting, register } from "../factory.ts";
import { testRegistry } from "../registry.ts";
import { tick } from "../tick.ts";
import { CANARY } from "./request.ts";
import type { Callbacks } from "./valid.ts";
import type { Sent } from "./webhooks.ts";

/** The tests' registry with the example's sources, whose providers' signatures are real ones. */
export function hostileRegistry() {
  return testRegistry()
    .webhook("stripe", stripePayments)
    .webhook("github", githubDeployments)
    .webhook("carrier", carrierParcels)
    .webhook("replicate", replicatePredictions);
}

/** Brings one callback to each end that there is. */
export async function makeCallbacks(pool: pg.Pool, database: Database): Promise<Callbacks> {
  const client = createClient({ database, registry: testRegistry() });
  const waiting = async (made: Parameters<typeof makeWaiting>[1] = {}) =>
    (await makeWaiting(pool, made)).callbackId;
  const taken = { kind: "plain", uniqueKey: "3".repeat(32), uniqueStates: ["completed"] };
  const ends: [
    name: "completed" | "failed" | "retried" | "resumed",
    end: (id: CallbackId) => Promise<unknown>,
  ][] = [
    ["completed", (id) => client.completeCallback(id, { payload: CANARY })],
    ["failed", (id) => client.failCallback(id, CANARY)],
    ["retried", (id) => client.retryCallback(id)],
    ["resumed", (id) => client.completeCallback(id, { payload: 1, resume: true })],
  ];
  const ended = {
    completed: await waiting(),
    failed: await waiting(),
    retried: await waiting(),
    resumed: await waiting(),
  };
  for (const [name, end] of ends) await end(ended[name]);
  await client.completeCallback(await waiting(taken), {});
  const cancelled = await makeWaiting(pool);
  await client.cancel(cancelled.id);
  const expired = await waiting({ timeoutAt: "now() - interval '1 second'" });
  await tick(database, testRegistry(), { runsJobs: false });
  const superseded = await makeRunning(pool);
  await register(pool, superseded.id);
  return {
    pending: await waiting(),
    running: (await makeRunning(pool)).callbackId,
    ...ended,
    expired,
    cancelled: cancelled.callbackId,
    superseded: superseded.callbackId,
    unknown: newCallbackId(),
    conflict: await waiting(taken),
    poison: await waiting({ kind: "poison" }),
  };
}

/** Deliveries of every source to be recorded: some resolve a callback of their own, some are ignored, parked or late. */
export async function makeDeliveries(pool: pg.Pool, { completed }: Callbacks): Promise<readonly Sent[]> {
  const json = (body: unknown) => JSON.stringify(body);
  const stripe = (id: string, type: string, callbackId: string | null): Sent => ({
    source: "stripe",
    id,
    path: "",
    headers: [],
    content: json({ id, type, data: { object: { id: "pi_1", metadata: { callback_id: callbackId } } } }),
  });
  const replicate = (id: string, callbackId: string): Sent => ({
    source: "replicate",
    id,
    path: `/${callbackId}`,
    headers: [],
    content: json({ id: "p1", status: "succeeded", output: [CANARY] }),
  });
  const github = (id: string, event: string): Sent => ({
    source: "github",
    id,
    path: "",
    headers: [["X-GitHub-Event", event]],
    content: json({ deployment: { id: 1 }, deployment_status: { state: "success" } }),
  });
  const carrier = (id: string, type: string): Sent => ({
    source: "carrier",
    id,
    path: "",
    headers: [],
    content: json({ type, data: { reference: "o-1", parcel: "p-1" } }),
  });
  const pending = async () => (await makeWaiting(pool, { kind: "plain" })).callbackId;
  return [
    stripe("evt_resolved", "payment_intent.succeeded", await pending()),
    stripe("evt_late", "payment_intent.succeeded", completed),
    stripe("evt_parked", "payment_intent.succeeded", newCallbackId()),
    stripe("evt_ignored", "invoice.paid", null),
    replicate("msg_resolved", await pending()),
    replicate("msg_late", completed),
    replicate("msg_parked", newCallbackId()),
    github("gh-parked", "deployment_status"),
    github("gh-ignored", "push"),
    carrier("car-parked", "parcel.collected"),
    carrier("car-ignored", "parcel.lost"),
  ];
}
