import { randomUUID } from "node:crypto";
import type { Stage } from "./stage.ts";
import { show, type Timeline } from "./timeline.ts";

/** The chapter about webhooks: one that comes early, and comes again. */
export async function release(story: Timeline, { client, jobOf, github, tick }: Stage): Promise<void> {
  story.chapter("A release: GitHub tells of it before the job waits for it, and tells it twice");
  const deploymentId = 4711;
  const deliveryId = randomUUID();
  const url = "https://shop.example";
  const tell = () =>
    github("deployment_status", deliveryId, {
      deployment: { id: deploymentId },
      deployment_status: { state: "success", environment_url: url },
    });
  const early = await tell();
  story.see(
    "a signed webhook comes early: nothing waits for it yet, and it is parked",
    [early.status, early.body],
    [200, { status: "parked" }],
    early.text,
  );
  const { jobId } = await client.enqueue("release_shop", { deploymentId });
  await tick();
  await story.seeSoon(
    "the job registers its callback, and the delivery is consumed in the same transaction",
    () => jobOf(jobId),
    ({ state, attempt, result }) => [state, attempt, result],
    ["completed", 1, { url }],
    (job) => [show(job), JSON.stringify(job.result)],
  );
  const delivery = await client.deliveries.get("github", deliveryId);
  story.see(
    "… and its record says which job it moved",
    [delivery?.state, delivery?.jobId],
    ["resolved", jobId],
  );
  const again = await tell();
  story.see(
    "GitHub sends it once more, and is told that it is a duplicate",
    [again.status, again.body],
    [200, { status: "duplicate" }],
    again.text,
  );
}
