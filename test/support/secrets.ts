/** Signs the callbacks of the tests; nothing else may use it. */
export const TEST_CALLBACK_SECRET = "5ec0".repeat(16);
