// The filters, tests and globals that templates find by name.
#pragma once

#include <map>
#include <string>

#include <absl/status/statusor.h>

#include "common/text/jinja/render.h"

namespace tandem::jinja {

using FilterFunction = absl::StatusOr<Value> (*)(Runtime&, const Value& input, const Args&);
using FilterTable = std::map<std::string, FilterFunction>;
using TestFunction = absl::StatusOr<bool> (*)(const Value& input, const Args&);

// InvalidArgument: no filter (test) of that name, or it refuses its input or arguments.
absl::StatusOr<Value> ApplyFilter(Runtime& runtime,
                                  const std::string& name,
                                  const Value& input,
                                  const Args& args);
absl::StatusOr<bool> ApplyTest(const std::string& name, const Value& input, const Args& args);

bool HasFilter(const std::string& name);
bool HasTest(const std::string& name);

// range, dict, namespace, cycler, joiner, raise_exception, strftime_now.
void AddGlobals(Scope& scope);

// One table per file.
const FilterTable& TextFilters();
const FilterTable& NumberFilters();
const FilterTable& SequenceFilters();
const FilterTable& SelectionFilters();
const FilterTable& SortingFilters();

}  // namespace tandem::jinja
