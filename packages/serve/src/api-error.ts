/** An error for a client, in the API's format. */
export class ApiError extends Error {
  override name = "ApiError";

  /**
   * @param param the invalid key of the request; null for none
   * @param headers sent with it
   */
  constructor(
    readonly status: number,
    message: string,
    readonly code: string | null = null,
    readonly param: string | null = null,
    readonly headers: Readonly<Record<string, string>> = {},
  ) {
    super(message);
  }

  get body(): object {
    const { message, param, code } = this;
    return { error: { message, type: this.#type, param, code } };
  }

  get #type(): string {
    if (this.status === 401) return "authentication_error";
    if (this.status === 429) return "rate_limit_error";
    return this.status >= 500 ? "server_error" : "invalid_request_error";
  }
}

/** A value of a request that breaks a rule. @param param its key */
export const invalidValue = (param: string, rule: string) =>
  new ApiError(400, `${param}: ${rule}`, "invalid_value", param);
