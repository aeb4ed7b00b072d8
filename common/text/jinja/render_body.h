// A list of statements in order.
#pragma once

#include <string>

#include "common/text/jinja/ast.h"

namespace tandem::jinja {

// Stops at break and continue; notes the line of the first error in the runtime.
absl::StatusOr<Flow> RenderBody(const Body& body, Frame& frame, std::string& out);

}  // namespace tandem::jinja
