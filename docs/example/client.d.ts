// Types of the client for documents (docs/push.md). In tsconfig.json:
// "compilerOptions": { "paths": { "/.well-known/microcache/client.js": ["./client.d.ts"] } }

export interface Change<T> {
  /** `gap`: versions before the next one are no longer in the history. */
  event: "put" | "delete" | "gap";
  /** The path of the document. */
  url: string;
  /** Its version, as in its `ETag`; `-` for a deletion that was noticed later. */
  id: string;
  /** Its `Content-Type`; undefined if it is gone. */
  type?: string;
  /** The value of JSON, or text. Null if it is not text and has to be fetched, undefined if it is gone. */
  document?: T;
  /** The merge patch (RFC 7396) that has led to the document, if only that was sent. */
  patch?: unknown;
}

export interface SubscriptionError extends Error {
  url: string;
  /** The HTTP status, if there was a response. */
  status?: number;
  /** True if the subscription has ended. Otherwise the client tries again. */
  ended?: boolean;
}

export interface Hub {
  /** Calls `listener` with the document and after each change. Returns a function that ends the subscription. */
  subscribe<T = any>(
    path: string,
    listener: (document: T | undefined, change: Change<T>) => void,
    options?: { onerror?: (error: SubscriptionError) => void },
  ): () => void;
  close(): void;
}

/** `token` returns the visitor's token (JWT): at the start, before it expires, and when the server refuses it. */
export function connect(options?: { token?: () => string | Promise<string> }): Hub;
