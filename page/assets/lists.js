// Lists of the daemon that no event tells of.

import { useEffect, useState } from './vendor/preact-htm.js';
import { listAll, sleep } from './api.js';

const pause = 5000; // between two lists

/** useList is a list of the daemon's, asked for again and again. */
export function useList(path, field) {
  const [list, setList] = useState([]);
  useEffect(() => {
    const ending = new AbortController();
    const follow = async () => {
      while (!ending.signal.aborted) {
        try {
          if (!document.hidden) setList(await listAll(path, field, { signal: ending.signal }));
        } catch { /* the store says what fails */ }
        await sleep(pause, ending.signal);
      }
    };
    follow();
    return () => ending.abort();
  }, [path]);
  return list;
}
