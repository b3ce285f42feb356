"""One task, a small model that was trained for it from nothing, and two recorded runs of it (`runs`)."""
