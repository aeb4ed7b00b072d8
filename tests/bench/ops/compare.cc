#include "tests/bench/ops/compare.h"

#include <vector>

#include <fmt/core.h>

#include "tests/bench/ops/stopwatch.h"

namespace tandem::bench {

double Compare(const Comparison& comparison,
               const std::function<void()>& ours,
               const Counterparts& others,
               const std::function<std::string(double)>& more) {
  std::vector<std::function<void()>> bodies = {ours};
  for (const Counterpart& other : others) bodies.push_back(other.run);
  const std::vector<double> seconds = BestOf(bodies);
  const auto figure = [&](double s) {
    return comparison.work > 0 ? 1e-9 * comparison.work / s : 1e6 * s;
  };
  std::string line = fmt::format("{}: tandem {:.2f}", comparison.name, figure(seconds[0]));
  size_t fastest = 0;  // its place in `seconds`; 0 while there is none
  for (size_t i = 1; i < seconds.size(); ++i) {
    line += fmt::format(" {} {:.2f}", others[i - 1].name, figure(seconds[i]));
    if (others[i - 1].part) continue;
    if (fastest == 0 || seconds[i] < seconds[fastest]) fastest = i;
  }
  if (fastest > 0) {
    line +=
        fmt::format(" ratio {:.2f} ({})", seconds[fastest] / seconds[0], others[fastest - 1].name);
  }
  if (more) line += more(seconds[0]);
  fmt::print("{} {}\n", line, comparison.work > 0 ? "GFLOP/s" : "us");
  std::fflush(stdout);
  return seconds[0];
}

}  // namespace tandem::bench
