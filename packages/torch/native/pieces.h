// Distributes work among threads.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <vector>

#include <ATen/Parallel.h>

namespace astra {

// Numbers processed once, below which a second thread costs more than it saves.
constexpr int64_t kGrain = 1 << 14;

// Threads take pieces of [0, total) dynamically: a delayed thread does not make the others wait. A piece should justify
// starting a thread.
template <typename Work>
void inPieces(int64_t total, int64_t piece, const Work& work) {
  std::atomic<int64_t> next{0};
  const int64_t threads = std::min<int64_t>(at::get_num_threads(), (total + piece - 1) / piece);
  at::parallel_for(0, threads, 1, [&](int64_t, int64_t) {
    for (int64_t from = next.fetch_add(piece); from < total; from = next.fetch_add(piece)) {
      work(from, std::min(total, from + piece));
    }
  });
}

// The same for several concatenated sequences with `counts` items each: `part` receives the sequence and the range
// within it.
template <typename Part>
void inPiecesOf(const std::vector<int64_t>& counts, int64_t piece, const Part& part) {
  int64_t total = 0;
  for (const int64_t count : counts) total += count;
  inPieces(total, piece, [&](int64_t from, int64_t to) {
    int64_t first = 0;
    for (size_t at = 0; at < counts.size() && first < to; first += counts[at++]) {
      const int64_t begin = std::max<int64_t>(0, from - first), end = std::min(counts[at], to - first);
      if (begin < end) part(at, begin, end);
    }
  });
}

}  // namespace astra
