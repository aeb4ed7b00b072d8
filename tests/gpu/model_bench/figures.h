// Results of a benchmark, as gpu_check.sh reads them: a line for each figure, and one for each that
// could not be measured.
#pragma once

#include <string>
#include <vector>

#include <absl/status/status.h>

namespace tandem::testing {

struct Figure {
  std::string name;
  double value = 0;
  std::string unit;
};

class Figures {
 public:
  // Prints "figure NAME VALUE UNIT".
  void Add(const std::string& name, double value, const std::string& unit);
  // Prints "not_run NAME REASON".
  void NotRun(const std::string& name, const std::string& reason);

  const std::vector<Figure>& added() const { return added_; }
  const std::vector<std::string>& not_run() const { return not_run_; }  // names
  // Internal names a figure that is not positive and finite. Unavailable, with the last reason:
  // nothing was measured.
  absl::Status Check() const;

 private:
  std::vector<Figure> added_;
  std::vector<std::string> not_run_;
  std::string last_reason_;
};

}  // namespace tandem::testing
