// Empty: see ../context.h.
#pragma once
