// Macros as callable values.
#pragma once

#include "common/text/jinja/ast.h"
#include "common/text/jinja/frame.h"

namespace tandem::jinja {

// The definition must outlive the runtime. Names are looked up where the macro was defined.
Value MakeMacro(const MacroDefinition& definition, Frame& frame);

}  // namespace tandem::jinja
