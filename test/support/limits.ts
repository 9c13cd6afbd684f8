/** Webhooks a minute that the Worker under test takes of one source, … */
export const SOURCE_LIMIT = 50;
/** … and of one address. */
export const ADDRESS_LIMIT = 3;
