// The files of the dashboard's pages, which are part of the program.
#pragma once

#include <optional>

#include "common/http/message.h"

namespace tandem {

// "/" and "/static/NAME"; null: there is no such file. A browser that has the file already (its
// digest as If-None-Match) is answered 304.
std::optional<HttpResponse> AnswerStaticFile(const HttpRequest& request);

}  // namespace tandem
