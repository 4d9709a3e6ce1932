"""Functions that a pipeline's file declares: `CREATE FUNCTION … AS PYTHON 'module:function'`, or a WebAssembly module's."""
