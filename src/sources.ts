import * as v from "valibot";
import { isStorable } from "./shared/json.ts";
import {
  defineSource,
  fail,
  github,
  heartbeat,
  ignore,
  replicate,
  resolve,
  standardWebhooks,
  stripe,
} from "./webhooks.ts";

/**
 * The webhooks that the example shop accepts: how each is verified, which callback an event is for, and what it means. registry.ts gives
 * each its name, which is also the last part of its URL.
 *
 * The code here is run again when a delivery is replayed: keep it synchronous, and free of effects.
 */

/**
 * Stripe tells of every payment of the account. Ours carry the id of the callback in their metadata: it is put there when the
 * PaymentIntent is created. The schema asks for no more than the code below reads, as events of every other type have to fit it too.
 */
export const stripePayments = defineSource({
  scheme: stripe(),
  secret: "STRIPE_WEBHOOK_SECRET",
  payload: v.object({
    type: v.string(),
    data: v.object({
      object: v.object({
        id: v.optional(v.string(), ""),
        metadata: v.nullish(v.object({ callback_id: v.nullish(v.string()) })),
      }),
    }),
  }),
  callback: ({ payload }) => {
    const id = payload.data.object.metadata?.callback_id;
    return id == null ? null : { id };
  },
  meaning: ({ payload: { type, data } }) => {
    switch (type) {
      case "payment_intent.succeeded":
        return resolve({ chargeId: data.object.id });
      case "payment_intent.canceled":
        return fail("the payment was canceled");
      // The customer may try another card: the payment isn't over.
      case "payment_intent.payment_failed":
      case "payment_intent.processing":
        return heartbeat(900);
      default:
        return ignore(`not of interest: ${type}`);
    }
  },
});

/**
 * GitHub can carry nothing of ours, so a deployment is known by its own id. Its first status may come before the job that asked for it has
 * registered its callback: it is parked until then.
 */
export const githubDeployments = defineSource({
  scheme: github(),
  secret: "GITHUB_WEBHOOK_SECRET",
  headers: ["X-GitHub-Event"],
  payload: v.object({
    deployment: v.nullish(v.object({ id: v.number() })),
    deployment_status: v.nullish(v.object({ state: v.string(), environment_url: v.nullish(v.string()) })),
  }),
  callback: ({ payload: { deployment } }) =>
    deployment == null ? null : { correlationKey: String(deployment.id) },
  meaning: ({ headers, payload: { deployment_status: status } }) => {
    if (headers["x-github-event"] !== "deployment_status" || status == null) {
      return ignore("no status of a deployment");
    }
    switch (status.state) {
      case "success":
        return resolve({ url: status.environment_url ?? null });
      case "failure":
      case "error":
        return fail(`the deployment ended in ${status.state}`);
      default:
        return heartbeat(1800);
    }
  },
});

/** The carrier signs by the Standard Webhooks, as many do, and knows a parcel by the number of our order. */
export const carrierParcels = defineSource({
  scheme: standardWebhooks(),
  secret: "CARRIER_WEBHOOK_SECRET",
  payload: v.object({ type: v.string(), data: v.object({ reference: v.string(), parcel: v.string() }) }),
  callback: ({ payload }) => ({ correlationKey: payload.data.reference }),
  meaning: ({ payload: { type, data } }) =>
    type === "parcel.collected" ? resolve({ parcel: data.parcel }) : ignore(`not of interest: ${type}`),
});

/** Replicate is given a URL for each prediction, and so the callback's id stands in it. It calls at every step; the last one counts. */
export const replicatePredictions = defineSource({
  scheme: replicate(),
  secret: "REPLICATE_WEBHOOK_SECRET",
  payload: v.object({
    id: v.string(),
    status: v.string(),
    output: v.optional(v.unknown()),
    error: v.nullish(v.string()),
  }),
  meaning: ({ payload: { id, status, output, error } }) => {
    switch (status) {
      case "succeeded":
        return resolve({ prediction: id, output: isStorable(output) ? output : null });
      case "failed":
        return fail(error ?? "the prediction failed");
      case "canceled":
        return fail("the prediction was canceled");
      default:
        return heartbeat(900);
    }
  },
});
