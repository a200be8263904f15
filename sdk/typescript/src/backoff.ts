/** Waiting: pauses between attempts, and promises that a signal can end. */

/** How patiently something is tried again. */
export interface RetryOptions {
  /** How many attempts there are in all. */
  attempts: number;
  /** The pause before the second attempt. Each further one is twice as long. */
  firstPauseMs: number;
  /** No pause is longer. */
  longestPauseMs: number;
}

/** For a single request. */
export const REQUEST_RETRY: Readonly<RetryOptions> = { attempts: 5, firstPauseMs: 200, longestPauseMs: 5_000 };

/** For a stream: attempts in a row that brought nothing new. More than two minutes, so that a server can be restarted. */
export const STREAM_RETRY: Readonly<RetryOptions> = { attempts: 30, firstPauseMs: 100, longestPauseMs: 5_000 };

/** The longest `Retry-After` that is waited for; beyond it, the error is the caller's. */
export const LONGEST_RETRY_AFTER_MS = 60_000;

/**
 * The pause after that many attempts came to nothing. Half of it is left to chance: after an outage all clients come
 * back, and should not come together.
 */
export function pause(options: RetryOptions, failures: number, random: () => number = Math.random): number {
  const doubled = options.firstPauseMs * 2 ** Math.min(Math.max(failures - 1, 0), 52);
  const whole = Math.min(doubled, options.longestPauseMs);
  return whole * (0.5 + random() / 2);
}

/** Waits; rejects with the signal's reason if that is aborted. */
export function sleep(milliseconds: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) {
      reject(signal.reason as Error);
      return;
    }
    const aborted = (): void => {
      clearTimeout(timer);
      reject(signal?.reason as Error);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", aborted);
      resolve();
    }, milliseconds);
    signal?.addEventListener("abort", aborted, { once: true });
  });
}

/** What is promised, or the signal's reason if that is aborted before. */
export function unlessAborted<T>(promise: Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    const abort = (): void => reject(signal.reason as Error);
    if (signal.aborted) abort();
    signal.addEventListener("abort", abort, { once: true });
    promise.then(resolve, reject).finally(() => signal.removeEventListener("abort", abort));
  });
}
