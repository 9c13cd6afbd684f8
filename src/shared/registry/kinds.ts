import type { StandardSchemaV1 } from "@standard-schema/spec";

/** Job kinds and the schemas of their args (any Standard Schema library: valibot, zod, arktype …). */
export type Kinds = Readonly<Record<string, StandardSchemaV1>>;
