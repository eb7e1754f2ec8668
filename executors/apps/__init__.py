"""Applications as a file or a REST body says them: read and checked (`file`), then built and packed (`packing`)."""
