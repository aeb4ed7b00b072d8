#include "common/text/jinja/registry.h"

#include "common/base/status_macros.h"

namespace tandem::jinja {
namespace {

FilterFunction FindFilter(const std::string& name) {
  static const auto* const kAll = [] {
    auto* all = new FilterTable;
    for (const auto* table : {&TextFilters(), &NumberFilters(), &SequenceFilters(),
                              &SelectionFilters(), &SortingFilters()}) {
      all->insert(table->begin(), table->end());
    }
    return all;
  }();
  const auto it = kAll->find(name);
  return it == kAll->end() ? nullptr : it->second;
}

}  // namespace

bool HasFilter(const std::string& name) { return FindFilter(name) != nullptr; }

absl::StatusOr<Value> ApplyFilter(Runtime& runtime,
                                  const std::string& name,
                                  const Value& input,
                                  const Args& args) {
  const FilterFunction filter = FindFilter(name);
  if (filter == nullptr) return InvalidArgument("No filter named '{}' is supported", name);
  return filter(runtime, input, args);
}

}  // namespace tandem::jinja
