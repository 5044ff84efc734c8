"""What the PySpark data source decides; none of it needs PySpark."""
